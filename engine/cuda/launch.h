// Checked kernel launches on the stream of the thread's context.
#pragma once
#include <algorithm>
#include <span>

#include "engine/cuda/cuda_context.h"

namespace godwit {

namespace detail {

// launch() with attributes.
template <class... Parameters, class... Arguments>
void launch_with(Cuda device, const char* operation, void (*kernel)(Parameters...), int64_t blocks, int threads,
                 std::span<cudaLaunchAttribute> attributes, const Arguments&... arguments) {
  if (blocks == 0) return;
  check(blocks < int64_t{1} << 31, operation, ": ", blocks, " blocks exceed the launch limit of 2^31 - 1");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = device.stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
  check(status == cudaSuccess, operation, ": kernel launch on cuda:", device.context->index,
        " failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

}  // namespace detail

// Launches kernel<<<blocks, threads>>>(arguments…), unless `blocks` is 0. An Error names the operation. Failures during
// execution are reported by a later call; set CUDA_LAUNCH_BLOCKING=1 to find the kernel.
template <class... Parameters, class... Arguments>
void launch(Cuda device, const char* operation, void (*kernel)(Parameters...), int64_t blocks, int threads,
            const Arguments&... arguments) {
  detail::launch_with(device, operation, kernel, blocks, threads, {}, arguments...);
}

constexpr int kBlock = 256;  // default threads per block

// Number of blocks for a grid-stride loop over n independent items: one thread per item, but at most enough blocks to
// fill the GPU.
inline int64_t blocks_for(Cuda device, int64_t n, int threads = kBlock) {
  return std::min<int64_t>((n + threads - 1) / threads,
                           int64_t{8} * device.context->multiprocessors * kBlock / threads);
}

// Returns `n` after checking that 32-bit indices suffice. Throws an Error otherwise.
inline uint32_t index_count(const char* operation, int64_t n) {
  check(n < int64_t{1} << 31, operation, ": ", n,
        " elements exceed the limit of a GPU kernel, 2^31 - 1; use a smaller batch");
  return static_cast<uint32_t>(n);
}

// The thread's index in the grid, and the number of threads in the grid.
__device__ inline int64_t grid_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_threads() { return int64_t{gridDim.x} * blockDim.x; }

// 32-bit versions for kernels over an index_count(). They exist because 32-bit divisions are faster.
__device__ inline uint32_t grid_thread32() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline uint32_t grid_threads32() { return gridDim.x * blockDim.x; }

}  // namespace godwit
