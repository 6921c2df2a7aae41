// Half-warp sums of a block's values, in the order of comm/compress/wire/block_math.h. The sums match the CPU bit for
// bit.
#pragma once
#include "comm/compress/wire/block_math.h"
#include "engine/cuda/launch.h"

namespace godwit {

__device__ inline double fold_lanes(double sum) {
  for (int half = kSumLanes / 2; half > 0; half /= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, half);
  return sum;
}

// Sum of term(i) for i in [0, n) in float64, returned to all 16 threads of the half warp. n is at most kSumPiece,
// unless term(i) are the sums of pieces. Both half warps must call this function together; n and term may differ.
template <class Term>
__device__ double piece_sum(int64_t n, const Term& term) {
  double sum = 0;
  for (int64_t i = threadIdx.x % kSumLanes; i < n; i += kSumLanes) sum = sum + term(i);
  return fold_lanes(sum);
}

// Like piece_sum(), for a block of any length.
template <class Term>
__device__ double lane_sum(int64_t n, const Term& term) {
  const int64_t other = __shfl_xor_sync(0xFFFFFFFFu, n, kSumLanes), longer = other > n ? other : n;
  double sum = 0;
  for (int64_t begin = 0, piece = 0; begin < longer; begin += kSumPiece, ++piece) {
    const int64_t left = n - begin;
    const double own = piece_sum(left < kSumPiece ? left : kSumPiece, [&](int64_t i) { return term(begin + i); });
    if (piece % kSumLanes == threadIdx.x % kSumLanes) sum = sum + own;
  }
  return fold_lanes(sum);
}

// The largest term, but at least 0. Like piece_sum(), returns the result to all 16 threads.
template <class Term>
__device__ int32_t lane_largest(int64_t n, const Term& term) {
  int32_t most = 0;
  for (int64_t i = threadIdx.x % kSumLanes; i < n; i += kSumLanes) most = term(i) > most ? term(i) : most;
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    const int32_t other = __shfl_xor_sync(0xFFFFFFFFu, most, half);
    most = other > most ? other : most;
  }
  return most;
}

// Magnitude bits: larger for larger magnitudes, and at least 0x7F800000 for infinity and NaN.
__device__ inline int32_t size_bits(float x) { return std::bit_cast<int32_t>(x) & 0x7FFFFFFF; }

// Calls f(block) for each of `count` blocks with all 16 threads of a half warp. Both half warps of a warp take part, so
// f is also called with some block >= count.
template <class F>
__device__ void for_half_warps(int64_t count, const F& f) {
  for (int64_t block = grid_thread() / kSumLanes; block - threadIdx.x % 32 / kSumLanes < count;
       block += grid_threads() / kSumLanes)
    f(block);
}

}  // namespace godwit
