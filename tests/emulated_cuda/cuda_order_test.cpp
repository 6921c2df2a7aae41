// Runs kernels with a random order of blocks and threads and several grid sizes. This reveals results that depend on
// either.
#include <cstdlib>
#include <set>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_order_test {

// Each thread reads its neighbor's value: of this block with a barrier, of an unknown block without.
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

// Adds every parts-th value: as many parts as blocks, or 100 on any GPU.
void partial_sums_kernel(bool of_blocks, const std::vector<float>& x, std::vector<float>& sums) {
  const unsigned parts = of_blocks ? gridDim.x : 100, threads = gridDim.x * blockDim.x;
  for (unsigned part = blockIdx.x * blockDim.x + threadIdx.x; part < parts; part += threads)
    for (size_t i = part; i < x.size(); i += parts) sums[part] += x[i];
}

// The number of different sums on GPUs with 1, 7 and 132 multiprocessors, of grids that fill them.
size_t sums_on_gpus(bool of_blocks) {
  std::vector<float> x;
  for (int i = 0; i < 20'000; ++i) x.push_back(1 / static_cast<float>(1 + i * 7919 % 20'000));
  std::set<float> all;
  for (const char* const multiprocessors : {"1", "7", "132"}) {
    setenv("GODWIT_EMULATED_MULTIPROCESSORS", multiprocessors, 1);
    int count = 0;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
    const dim3 grid(8 * static_cast<unsigned>(count));
    std::vector<float> sums(2000);
    emulated::run_grid(grid, dim3(32), [&] { partial_sums_kernel(of_blocks, x, sums); });
    float total = 0;
    for (const float sum : sums) total += sum;
    all.insert(total);
  }
  unsetenv("GODWIT_EMULATED_MULTIPROCESSORS");
  return all.size();
}

TEST(EmulatedOrder, SeveralNumbersOfMultiprocessorsRevealASumOverTheGrid) {
  EXPECT_EQ(sums_on_gpus(false), 1u);
  EXPECT_EQ(sums_on_gpus(true), 3u);
}

}  // namespace cuda_order_test
}  // namespace godwit
