#include <cmath>

#include "comm/compress/cuda/block_sums.h"
#include "comm/compress/low_rank.h"
#include "engine/cuda/rows.h"
#include "engine/philox.h"

namespace godwit::low_rank {
namespace {

__device__ double dot(const float* a, const float* b, int64_t n) {
  return lane_sum(n, [=](int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

// Half a warp per element of P.
__global__ void project_kernel(Sizes sizes, const float* m, const float* q, float* p) {
  const int64_t count = sizes.rows * sizes.rank;
  const auto rank = static_cast<uint32_t>(sizes.rank);
  for_half_warps(count, [&](int64_t item) {
    const int64_t i = static_cast<uint32_t>(item) / rank, k = item - i * rank, n = item < count ? sizes.cols : 0;
    const double sum = dot(m + i * sizes.cols, q + k * sizes.cols, n);
    if (item < count && threadIdx.x % kSumLanes == 0) p[k * sizes.rows + i] = static_cast<float>(sum);
  });
}

constexpr int kColumnThreads = 1024;

// Dot product, returned to all threads of the block: the first warp adds products while the others compute the next
// ones.
__device__ double dot_of_block(const float* a, const float* b, int64_t n) {
  constexpr int64_t kChunk = 2048;
  static_assert(kSumPiece % kChunk == 0);
  __shared__ double products[2][kChunk];
  __shared__ double result;
  double of_piece = 0, of_pieces = 0;  // sums of this lane
  __syncthreads();                     // a and b are written, and the previous result has been read
  for (int64_t begin = 0; begin < n + kChunk; begin += kChunk) {
    const int buffer = static_cast<int>(begin / kChunk % 2);
    if (threadIdx.x >= 32) {
      const int64_t count = n - begin < kChunk ? n - begin : kChunk;
      for (int64_t i = threadIdx.x - 32; i < count; i += kColumnThreads - 32)
        products[buffer][i] = static_cast<double>(a[begin + i]) * static_cast<double>(b[begin + i]);
    } else if (begin > 0) {
      const int64_t left = n - (begin - kChunk), count = left < kChunk ? left : kChunk;
      for (int64_t i = threadIdx.x % kSumLanes; i < count; i += kSumLanes)
        of_piece = of_piece + products[1 - buffer][i];
      if (begin % kSumPiece == 0 || begin >= n) {
        of_piece = fold_lanes(of_piece);
        if ((begin - 1) / kSumPiece % kSumLanes == threadIdx.x % kSumLanes) of_pieces = of_pieces + of_piece;
        of_piece = 0;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    of_pieces = fold_lanes(of_pieces);
    if (threadIdx.x == 0) result = of_pieces;
  }
  __syncthreads();
  return result;
}

// Subtracts the projections on the columns before k from column k; returns the norm of the rest.
__device__ double orthogonal_to_earlier(const Sizes& sizes, int64_t k, float* p) {
  float* column = p + k * sizes.rows;
  for (int64_t j = 0; j < k; ++j) {
    const float* earlier = p + j * sizes.rows;
    const float part = -static_cast<float>(dot_of_block(earlier, column, sizes.rows));
    for (int64_t i = threadIdx.x; i < sizes.rows; i += blockDim.x) column[i] = column[i] + part * earlier[i];
  }
  return std::sqrt(dot_of_block(column, column, sizes.rows));
}

// Runs on one block of threads.
__global__ void __launch_bounds__(kColumnThreads)
    orthogonalize_kernel(Sizes sizes, uint64_t seed, int64_t element, uint32_t step, float* p) {
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

// Each block computes kCols columns of M times kRanks columns of P. Each thread of the first half adds one sum over the
// rows, in order, from tiles of kRows rows; the second half loads the next tile.
constexpr int kCols = 8, kRows = 128, kRanks = 32, kSums = kCols * kRanks;

__global__ void project_back_kernel(Sizes sizes, const float* m, const float* p, float* q) {
  __shared__ float of_m[2][kRows][kCols], of_p[2][kRanks][kRows + 1];
  const int64_t tiles = (sizes.cols + kCols - 1) / kCols;
  const int64_t first_col = blockIdx.x % tiles * kCols, first_rank = blockIdx.x / tiles * kRanks;
  const int64_t cols = sizes.cols - first_col < kCols ? sizes.cols - first_col : kCols;
  const int64_t ranks = sizes.rank - first_rank < kRanks ? sizes.rank - first_rank : kRanks;
  const int own = static_cast<int>(threadIdx.x) % kSums, c = own % kCols, k = own / kCols;
  const bool sums = threadIdx.x < kSums && c < cols && k < ranks;
  float sum = 0;
  for (int64_t begin = 0; begin < sizes.rows + kRows; begin += kRows) {
    const int buffer = static_cast<int>(begin / kRows % 2);
    if (threadIdx.x >= kSums) {
      const int64_t rows = sizes.rows - begin < kRows ? sizes.rows - begin : kRows;
      if (c < cols)
        for (int64_t i = k; i < rows; i += kRanks) of_m[buffer][i][c] = m[(begin + i) * sizes.cols + first_col + c];
      for (int64_t at = own; at < ranks * kRows; at += kSums)
        if (at % kRows < rows)
          of_p[buffer][at / kRows][at % kRows] = p[(first_rank + at / kRows) * sizes.rows + begin + at % kRows];
    } else if (sums && begin > 0) {
      const int64_t left = sizes.rows - (begin - kRows), rows = left < kRows ? left : kRows;
      for (int64_t i = 0; i < rows; ++i) sum = sum + of_p[1 - buffer][k][i] * of_m[1 - buffer][i][c];
    }
    __syncthreads();
  }
  if (sums) q[(first_rank + k) * sizes.cols + first_col + c] = sum;
}

// Elements of P·Qᵀ, or of M − P·Qᵀ.
struct Product {
  Sizes sizes;
  const float *p, *q, *m;
  bool subtract;
  template <int n>
  __device__ void operator()(uint32_t i, uint32_t j, float (&values)[n]) const {
    float products[n] = {};
    for (int64_t k = 0; k < sizes.rank; ++k) {
      const float left = p[k * sizes.rows + i];
      const auto right = detail::load_pack<n>(q + k * sizes.cols + j, 0);
      for (int c = 0; c < n; ++c) products[c] = products[c] + left * right.values[c];
    }
    detail::Pack<float, n> before = {};
    if (subtract) before = detail::load_pack<n>(m + i * sizes.cols + j, 0);
    for (int c = 0; c < n; ++c) values[c] = subtract ? before.values[c] - products[c] : products[c];
  }
};

}  // namespace

void project(Cuda device, const Sizes& sizes, const float* m, const float* q, float* p) {
  const int64_t sums = index_count("powersgd", sizes.rows * sizes.rank);
  launch(device, "powersgd", project_kernel, blocks_for(device, kSumLanes * sums), kBlock, sizes, m, q, p);
}

void orthogonalize(Cuda device, const Sizes& sizes, uint64_t seed, int64_t element, int64_t step, float* p) {
  launch(device, "powersgd", orthogonalize_kernel, 1, kColumnThreads, sizes, seed, element, static_cast<uint32_t>(step),
         p);
}

void project_back(Cuda device, const Sizes& sizes, const float* m, const float* p, float* q) {
  const int64_t tiles = (sizes.cols + kCols - 1) / kCols, of_ranks = (sizes.rank + kRanks - 1) / kRanks;
  launch(device, "powersgd", project_back_kernel, tiles * of_ranks, 2 * kSums, sizes, m, p, q);
}

void multiply(Cuda device, const Sizes& sizes, const float* p, const float* q, bool subtract, float* m) {
  generate_rows(device, "powersgd", sizes.rows, sizes.cols, sizes.cols, Product{sizes, p, q, m, subtract}, m, q);
}

}  // namespace godwit::low_rank
