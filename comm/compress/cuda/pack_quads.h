// Small whole numbers to 32-bit words, by threads that have four values each.
#pragma once
#include "engine/cuda/update.h"

namespace godwit {

constexpr int kQuad = 4;  // values of a thread at a time: 16 bytes of float32, and the words of one Philox counter

// Calls f(i) for i = 0, 4, 8, … below n, spread over the block's threads; whole warps stay together, so that some are
// called with i from n on.
template <class F>
__device__ void for_quads(int64_t n, const F& f) {
  for (int64_t i = kQuad * threadIdx.x; i - kQuad * (threadIdx.x % 32) < n; i += kQuad * blockDim.x) f(i);
}

// A thread's four fields of so many bits, the first in the lowest, to the words of values [i, i + 4) of n. All of a
// warp.
template <int kBits>
__device__ void store_quad(uint32_t fields, int64_t i, int64_t n, uint32_t* words) {
  constexpr unsigned kThreads = 32 / (kBits * kQuad);  // whose values share a word
  if constexpr (kThreads > 1) fields <<= kBits * kQuad * (threadIdx.x % kThreads);
  for (unsigned other = 1; other < kThreads; other *= 2) fields |= __shfl_xor_sync(0xFFFFFFFFu, fields, other);
  if (threadIdx.x % kThreads == 0 && i < n) words[i * kBits / 32] = fields;
}

}  // namespace godwit
