// Dropout decisions as bit masks in the order of tensor-core fragments.
#pragma once
#include "autograd/ops/attention/cuda/attention_tiles.h"

namespace godwit::detail {

// Bit k: 1 if the probability of element 4 · quad + k is kept.
__device__ inline uint32_t kept_of_quad(const AttentionView& call, uint32_t quad) {
  const auto words = philox4x32({quad, call.step(), call.rng.purpose, call.rng.sender},
                                {static_cast<uint32_t>(call.rng.seed), static_cast<uint32_t>(call.rng.seed >> 32)});
  const uint32_t last =
      (static_cast<uint32_t>(call.dropped) << 8) - 1;  // the largest word whose upper 24 bits are below `dropped`
  uint32_t kept = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) kept |= (words[k] > last ? 1u : 0u) << k;
  return kept;
}

__device__ inline uint32_t kept_of_element(const AttentionView& call, int64_t element) {
  return kept_of_quad(call, static_cast<uint32_t>(element >> 2)) >> (element & 3) & 1;
}

// For tiles whose rows are queries: bit 4n + c of kept[r] is for query `query` + lane / 4 + 8r, key `key` + 8n + 2(lane
// % 4) + c. If keys % 4 == 0, four consecutive keys share a Philox draw; one of two lanes computes it for both.
template <int kN>
__device__ void kept_by_query(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key,
                              uint32_t (&kept)[2]) {
  const int t = lane() % 4, odd = t % 2;
  const int64_t row = head.number(call) * call.queries + query + lane() / 4;
  if (call.keys % 4 == 0) {
    const auto quad = static_cast<uint32_t>(((row + 8 * odd) * call.keys + key) >> 2) + t / 2;
    uint32_t mine = 0;
#pragma unroll
    for (int n = 0; n < kN; ++n) mine |= kept_of_quad(call, quad + 2 * n) << 4 * n;
    const uint32_t others = __shfl_xor_sync(~0u, mine, 1);
    kept[0] = (odd ? others : mine) >> 2 * odd;
    kept[1] = (odd ? mine : others) >> 2 * odd;
    return;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    kept[r] = 0;
    for (int i = 0; i < 2 * kN; ++i)
      kept[r] |= kept_of_element(call, (row + 8 * r) * call.keys + key + i / 2 * 8 + 2 * t + i % 2)
                 << (i / 2 * 4 + i % 2);
  }
}

// For tiles whose rows are keys: bit 4n + 2r + c is for key `key` + lane / 4 + 8r, query `query` + 8n + 2(lane % 4) +
// c. If keys % 4 == 0, four consecutive keys share a Philox draw; one lane computes it for the four lanes that hold
// these keys.
template <int kN>
__device__ uint32_t kept_by_key(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key) {
  const int g = lane() / 4, t = lane() % 4;
  const int64_t row = head.number(call) * call.queries + query + 2 * t;
  uint32_t kept = 0;
  if (call.keys % 4 == 0) {
    const auto quad = static_cast<uint32_t>(((row + g % 2) * call.keys + key) >> 2) + g / 2;
    const auto step = static_cast<uint32_t>(2 * call.keys);  // eight queries further
    uint32_t mine = 0;
#pragma unroll
    for (int n = 0; n < kN; ++n) mine |= kept_of_quad(call, quad + n * step) << 4 * n;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t others = __shfl_sync(~0u, mine, ((i / 2 * 2 + g / 4) * 2 + i % 2) * 4 + t);
      kept |= (others >> g % 4 & 0x11111111) << i;
    }
    return kept;
  }
  for (int i = 0; i < 4 * kN; ++i)
    kept |= kept_of_element(call, (row + i / 4 * 8 + i % 2) * call.keys + key + g + i / 2 % 2 * 8) << i;
  return kept;
}

}  // namespace godwit::detail
