// Packs small integers into 32-bit words. Each thread holds four values.
#pragma once
#include "engine/cuda/update.h"

namespace godwit {

constexpr int kQuad = 4;  // values per thread: 16 bytes of float32, and one Philox counter

// Calls f(i) for i = 0, 4, 8, … below n, distributed over the threads of the block. Whole warps take part, so f is also
// called with some i >= n.
template <class F>
__device__ void for_quads(int64_t n, const F& f) {
  for (int64_t i = kQuad * threadIdx.x; i - kQuad * (threadIdx.x % 32) < n; i += kQuad * blockDim.x) f(i);
}

// Stores a thread's four fields of kBits bits (the first in the lowest bits) as values [i, i + 4) of n. All threads of
// the warp must call this function.
template <int kBits>
__device__ void store_quad(uint32_t fields, int64_t i, int64_t n, uint32_t* words) {
  constexpr unsigned kThreads = 32 / (kBits * kQuad);  // number of threads whose values share a word
  if constexpr (kThreads > 1) fields <<= kBits * kQuad * (threadIdx.x % kThreads);
  for (unsigned other = 1; other < kThreads; other *= 2) fields |= __shfl_xor_sync(0xFFFFFFFFu, fields, other);
  if (threadIdx.x % kThreads == 0 && i < n) words[i * kBits / 32] = fields;
}

}  // namespace godwit
