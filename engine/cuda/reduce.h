// Reductions over the threads of a block and over the rows of a matrix. The order is fixed, so results do not depend on
// timing.
#pragma once
#include <array>
#include <initializer_list>

#include "engine/column_chunk.h"
#include "engine/context.h"
#include "engine/cuda/rows.h"

namespace godwit {

struct Plus {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};

struct Larger {  // ignores NaN in b
  template <class C>
  __device__ C operator()(C a, C b) const {
    return b > a ? b : a;
  }
};

// Reduces the values of all threads of the block with the commutative op. Every thread gets the result. The block size
// must be a multiple of 32 and at most 1024.
template <class C, class Op>
__device__ C block_reduce(C value, Op op) {
  __shared__ C of_warps[32];
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, mask));
  __syncthreads();  // until all threads have read the result of the previous reduction
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  C result = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) result = op(result, of_warps[warp]);
  return result;
}

// Threads per block for one row of `width` elements.
inline int row_threads(int64_t width) {
  return static_cast<int>(std::clamp<int64_t>((width + 31) / 32 * 32, 32, kBlock));
}

namespace detail {

// Each thread sums n columns over one chunk of rows.
template <int n, class Term>
__global__ void column_partial_kernel(Term term, int64_t rows, int64_t chunk, int64_t width, uint32_t tiles,
                                      double* partial) {
  const int64_t first = blockIdx.x / tiles * chunk, c = int64_t{blockIdx.x % tiles * blockDim.x + threadIdx.x} * n;
  if (c >= width) return;
  const int64_t end = first + chunk < rows ? first + chunk : rows;
  double sums[Term::kSums][n] = {};
#pragma unroll 4
  for (int64_t row = first; row < end; ++row) term(row, c, sums);
  for (int s = 0; s < Term::kSums; ++s)
    for (int k = 0; k < n; ++k) partial[(blockIdx.x / tiles * Term::kSums + s) * width + c + k] = sums[s][k];
}

// Sums values[k·stride] for k in [0, count), in order, with kAhead loads in flight.
template <int64_t kAhead = 32>
__device__ double ordered_sum(const double* values, int64_t count, int64_t stride) {
  double sum = 0;
  for (; count > 0; count -= kAhead, values += kAhead * stride) {
    double ahead[kAhead];
#pragma unroll
    for (int64_t k = 0; k < kAhead; ++k)
      if (k < count) ahead[k] = values[k * stride];
#pragma unroll
    for (int64_t k = 0; k < kAhead; ++k)
      if (k < count) sum += ahead[k];
  }
  return sum;
}

// Adds the chunk sums of each column.
template <size_t sums, class C>
__global__ void column_total_kernel(const double* partial, int64_t chunks, int64_t width, std::array<C*, sums> to) {
  constexpr int64_t kSums = sums;
  for (int64_t i = grid_thread(); i < kSums * width; i += grid_threads()) {
    const double sum = ordered_sum(partial + i, chunks, kSums * width);
#pragma unroll
    for (int64_t s = 0; s < kSums; ++s)
      if (i >= s * width && i < (s + 1) * width) to[static_cast<size_t>(s)][i - s * width] = static_cast<C>(sum);
  }
}

}  // namespace detail

// Sets to[s][c] to sum s of column c. The sums are in float64: first over chunks of column_chunk() rows, then over the
// chunks, both in order. term(row, c, sums) adds the values of columns [c, c + n) of a row to double
// sums[Term::kSums][n]. term is a template of n: by_packs() chooses kPack<T> or 1 for the matrices `from`, which have
// `width` columns.
template <class T, class Term, class C>
void column_sums(Cuda device, const char* operation, int64_t rows, int64_t width, Term term,
                 const std::array<C*, Term::kSums>& to, std::initializer_list<const T*> from) {
  const int64_t chunk = column_chunk(rows), chunks = (rows + chunk - 1) / chunk;
  const Tensor partial({chunks, Term::kSums, width}, DType::f64, cuda_device(device.context->index));
  const bool aligned = std::all_of(from.begin(), from.end(), [](const T* x) { return aligned_to<16>(x); });
  by_packs<T>(aligned ? width : 1, [&]<int n>() {
    const int threads = row_threads(width / n);
    const int64_t tiles = (width / n + threads - 1) / threads;
    launch(device, operation, detail::column_partial_kernel<n, Term>, chunks * tiles, threads, term, rows, chunk, width,
           tiles, partial.cuda_data<double>());
  });
  constexpr int kThreads = 32;  // many small blocks, because each thread runs long
  launch(device, operation, detail::column_total_kernel<Term::kSums, C>,
         blocks_for(device, Term::kSums * width, kThreads), kThreads, partial.cuda_data<double>(), chunks, width, to);
}

}  // namespace godwit
