#include "comm/wire/low_rank.h"

#include <cmath>

#include "comm/cuda/block_sums.h"
#include "engine/philox.h"

namespace godwit::low_rank {
namespace {

__device__ double dot(const float* a, const float* b, int64_t n) {
  return lane_sum(n, [=](int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

// Half a warp a row and column of P.
__global__ void project_kernel(Sizes sizes, const float* m, const float* q, float* p) {
  const int64_t count = sizes.rows * sizes.rank;
  for_half_warps(count, [&](int64_t item) {
    const int64_t i = item / sizes.rank, k = item % sizes.rank, n = item < count ? sizes.cols : 0;
    const double sum = dot(m + i * sizes.cols, q + k * sizes.cols, n);
    if (item < count && threadIdx.x % kSumLanes == 0) p[k * sizes.rows + i] = static_cast<float>(sum);
  });
}

// The first warp adds, all threads of the block get the sum.
__device__ double dot_of_block(const float* a, const float* b, int64_t n) {
  __shared__ double sum;
  __syncthreads();  // a and b are written, and an earlier sum has been read
  if (threadIdx.x < 32) {
    const double own = dot(a, b, n);
    if (threadIdx.x == 0) sum = own;
  }
  __syncthreads();
  return sum;
}

// Returns the length of what remains of column k.
__device__ double orthogonal_to_earlier(const Sizes& sizes, int64_t k, float* p) {
  float* column = p + k * sizes.rows;
  for (int64_t j = 0; j < k; ++j) {
    const float* earlier = p + j * sizes.rows;
    const float part = -static_cast<float>(dot_of_block(earlier, column, sizes.rows));
    for (int64_t i = threadIdx.x; i < sizes.rows; i += blockDim.x) column[i] = column[i] + part * earlier[i];
  }
  return std::sqrt(dot_of_block(column, column, sizes.rows));
}

// One block of threads.
__global__ void orthogonalise_kernel(Sizes sizes, uint64_t seed, int64_t element, uint32_t step, float* p) {
  for (int64_t k = 0; k < sizes.rank; ++k) {
    float* column = p + k * sizes.rows;
    const double before = std::sqrt(dot_of_block(column, column, sizes.rows));
    double length = orthogonal_to_earlier(sizes, k, p);
    if (!(length > 1e-6 * before)) {
      for (int64_t i = threadIdx.x; i < sizes.rows; i += blockDim.x)
        column[i] =
            2 * to_unit(random_word(seed, element + i, step, Purpose::coordinates, static_cast<uint32_t>(k))) - 1;
      length = orthogonal_to_earlier(sizes, k, p);
    }
    for (int64_t i = threadIdx.x; i < sizes.rows; i += blockDim.x) column[i] = column[i] / static_cast<float>(length);
  }
}

__global__ void project_back_kernel(Sizes sizes, const float* m, const float* p, float* q) {
  for (int64_t item = grid_thread(); item < sizes.cols * sizes.rank; item += grid_threads()) {
    const int64_t k = item / sizes.cols, j = item % sizes.cols;
    float sum = 0;
    for (int64_t i = 0; i < sizes.rows; ++i) sum = sum + p[k * sizes.rows + i] * m[i * sizes.cols + j];
    q[item] = sum;
  }
}

__global__ void multiply_kernel(Sizes sizes, const float* p, const float* q, bool subtract, float* m) {
  for (int64_t item = grid_thread(); item < sizes.rows * sizes.cols; item += grid_threads()) {
    const int64_t i = item / sizes.cols, j = item % sizes.cols;
    float product = 0;
    for (int64_t k = 0; k < sizes.rank; ++k) product = product + p[k * sizes.rows + i] * q[k * sizes.cols + j];
    m[item] = subtract ? m[item] - product : product;
  }
}

}  // namespace

void project(Cuda device, const Sizes& sizes, const float* m, const float* q, float* p) {
  const int64_t sums = sizes.rows * sizes.rank;
  launch(device, "powersgd", project_kernel, blocks_for(device, kSumLanes * sums), kBlock, sizes, m, q, p);
}

void orthogonalise(Cuda device, const Sizes& sizes, uint64_t seed, int64_t element, int64_t step, float* p) {
  launch(device, "powersgd", orthogonalise_kernel, 1, kBlock, sizes, seed, element, static_cast<uint32_t>(step), p);
}

void project_back(Cuda device, const Sizes& sizes, const float* m, const float* p, float* q) {
  launch(device, "powersgd", project_back_kernel, blocks_for(device, sizes.cols * sizes.rank, 64), 64, sizes, m, p, q);
}

void multiply(Cuda device, const Sizes& sizes, const float* p, const float* q, bool subtract, float* m) {
  const int64_t values = sizes.rows * sizes.cols;
  launch(device, "powersgd", multiply_kernel, blocks_for(device, values), kBlock, sizes, p, q, subtract, m);
}

}  // namespace godwit::low_rank
