// The random order of blocks and threads reveals kernels whose results depend on it.
#include <cstdlib>
#include <set>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime.h"
#include "tests/support.h"

namespace godwit {
namespace {

// Each thread reads its neighbor's value: from this block with a barrier, from an unknown one without.
void neighbor_kernel(bool barrier, int* to) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
  if (barrier) __syncthreads();
  to[blockIdx.x * 64 + threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

// Adds in the order of the blocks.
void sum_kernel(bool, int* to) {
  if (threadIdx.x == 0) *to = *to * 3 + static_cast<int>(blockIdx.x);
}

// The number of different results in several orders.
size_t results(void (*kernel)(bool, int*), bool flag) {
  std::set<std::vector<int>> all;
  for (int order = 0; order < 6; ++order) {
    setenv("GODWIT_EMULATED_ORDER", std::to_string(order).c_str(), 1);
    std::vector<int> to(4 * 64);
    emulated::run_grid(dim3(4), dim3(64), [&] { kernel(flag, to.data()); });
    all.insert(to);
  }
  unsetenv("GODWIT_EMULATED_ORDER");
  return all.size();
}

TEST(EmulatedOrder, RevealsAMissingBarrier) {
  EXPECT_EQ(results(neighbor_kernel, true), 1u);
  EXPECT_GT(results(neighbor_kernel, false), 1u);
}

TEST(EmulatedOrder, RevealsASumInTheOrderOfTheBlocks) { EXPECT_GT(results(sum_kernel, false), 1u); }

}  // namespace
}  // namespace godwit
