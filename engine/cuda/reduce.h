// Reductions over a block's threads and over the rows of a matrix, in a fixed order, so results do not depend on
// timing.
#pragma once
#include "engine/column_chunk.h"
#include "engine/context.h"
#include "engine/cuda/launch.h"

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

// Reduces the values of all threads of the block with op, which is commutative; every thread gets the result. The block
// size is a multiple of 32, at most 1024.
template <class C, class Op>
__device__ C block_reduce(C value, Op op) {
  __shared__ C of_warps[32];
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, mask));
  __syncthreads();  // an earlier reduction's result has been read
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

// Each block sums a chunk of rows for kBlock columns.
template <class Term>
__global__ void column_partial_kernel(Term term, int64_t rows, int64_t chunk, int64_t width, int64_t tiles,
                                      double* partial) {
  const int64_t first = blockIdx.x / tiles * chunk, c = blockIdx.x % tiles * kBlock + threadIdx.x;
  if (c >= width) return;
  const int64_t end = first + chunk < rows ? first + chunk : rows;
  double sum = 0;
  for (int64_t row = first; row < end; ++row) sum += static_cast<double>(term(row, c));
  partial[blockIdx.x / tiles * width + c] = sum;
}

template <class C>
__global__ void column_total_kernel(const double* partial, int64_t chunks, int64_t width, C* to) {
  for (int64_t c = grid_thread(); c < width; c += grid_threads()) {
    double sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * width + c];
    to[c] = static_cast<C>(sum);
  }
}

}  // namespace detail

// to[c] = Σ term(row, c) over the rows, in float64: first in chunks of column_chunk() rows, then over the chunks, each
// in order.
template <class Term, class C>
void column_sums(Cuda device, const char* operation, int64_t rows, int64_t width, Term term, C* to) {
  const int64_t chunk = column_chunk(rows), chunks = (rows + chunk - 1) / chunk;
  const int64_t tiles = (width + kBlock - 1) / kBlock;
  const Tensor partial({chunks, width}, DType::f64, cuda_device(device.context->index));
  launch(device, operation, detail::column_partial_kernel<Term>, chunks * tiles, kBlock, term, rows, chunk, width,
         tiles, partial.cuda_data<double>());
  launch(device, operation, detail::column_total_kernel<C>, blocks_for(device, width), kBlock,
         partial.cuda_data<double>(), chunks, width, to);
}

}  // namespace godwit
