// Cooperative kernels: all blocks of a grid run at the same time and can wait for each other, so a launch can use sums
// that all of its blocks compute. Kernels of other streams cannot cause a deadlock: if one thread of a cooperative grid
// makes progress, CUDA guarantees that all threads of the grid do (CUDA C++ Core Libraries, "Execution model").
#pragma once
#include <cooperative_groups.h>

#include "engine/cuda/launch.h"

namespace godwit {

// Blocks of a cooperative kernel per multiprocessor. The kernel must have __launch_bounds__(kBlock, kResidentBlocks),
// so that its registers allow this number. scripts/check_kernels checks it.
constexpr int kResidentBlocks = 3;

// Launches a cooperative kernel with kBlock threads per block, and `blocks` blocks, but at most kResidentBlocks per
// multiprocessor. Launches nothing if `blocks` is 0.
template <class... Parameters, class... Arguments>
void launch_cooperative(Cuda device, const char* operation, void (*kernel)(Parameters...), int64_t blocks,
                        const Arguments&... arguments) {
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  const int64_t most = int64_t{kResidentBlocks} * device.context->multiprocessors;
  detail::launch_with(device, operation, kernel, std::min(blocks, most), kBlock, {&cooperative, 1}, arguments...);
}

// Waits until all threads of the grid have called it. Later reads see all writes before the barrier. All threads of a
// cooperative kernel must call it equally often.
__device__ inline void grid_barrier() { cooperative_groups::this_grid().sync(); }

}  // namespace godwit
