// Dropout decisions as bit masks in the order of tensor-core fragments.
#pragma once
#include "autograd/ops/attention/cuda/attention_tiles.h"

namespace godwit::detail {

// For tiles whose rows are queries: bit 4n + c of kept[r] is for query `query` + lane / 4 + 8r, key `key` + 8n + 2(lane
// % 4) + c; `key` is a multiple of 4. Four lanes share two rows. Each lane draws kN quads: every second quad of a row.
// If keys % 4 != 0, rows begin within a quad, and a lane draws the last quad of its row too.
template <int kN>
__device__ void kept_by_query(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key,
                              uint32_t (&kept)[2]) {
  const int t = lane() % 4, odd = t % 2;
  const int64_t row = head.number(call) * call.queries + query + lane() / 4;
  const int64_t first = (row + 8 * odd) * call.keys + key;
  const auto quad = static_cast<uint32_t>(first >> 2);
  uint32_t mine = 0;
#pragma unroll
  for (int n = 0; n < kN; ++n) mine |= kept_of_quad(call, quad + t / 2 + 2 * n) << 4 * n;
  const auto both_rows = [&](uint32_t bits, uint32_t(&of)[2]) {
    const uint32_t others = __shfl_xor_sync(~0u, bits, 1);
    of[0] = odd ? others : bits;
    of[1] = odd ? bits : others;
  };
  both_rows(mine, kept);  // nibble n: quad 2n + t / 2
  const int at =
      2 * odd + static_cast<int>(first & 3);  // of bit c = 0, from the start of that quad; equal for both rows
  if (call.keys % 4 == 0) {
    kept[0] >>= at;
    kept[1] >>= at;
    return;
  }
  uint32_t last[2];
  both_rows(kept_of_quad(call, quad + 2 * kN), last);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    uint32_t next = __shfl_xor_sync(~0u, kept[r], 2);  // nibble n: quad 2n + t / 2 + 1
    if (t >= 2) next = next >> 4 | last[r] << (4 * kN - 4);
    kept[r] = (at >= 4 ? next : kept[r]) >> at % 4;
    if (at == 3) kept[r] = (kept[r] & 0x11111111) | (next & 0x11111111) << 1;
  }
}

// For tiles whose rows are keys: bit 4n + 2r + c is for key `key` + lane / 4 + 8r, query `query` + 8n + 2(lane % 4) +
// c; `key` is a multiple of 16. The sixteen keys of a query are in four quads, each drawn by one lane for the four
// lanes that hold its keys. If keys % 4 != 0, the keys are in five quads; four lanes share the fifth quads.
template <int kN>
__device__ uint32_t kept_by_key(const AttentionView& call, const AttentionHeadView& head, int64_t query, int64_t key) {
  const int g = lane() / 4, t = lane() % 4;
  const int64_t row = head.number(call) * call.queries + query + 2 * t;
  const auto quad = static_cast<uint32_t>(((row + g % 2) * call.keys + key) >> 2);
  const auto step = static_cast<uint32_t>(2 * call.keys);  // eight queries further
  uint32_t mine = 0, fifth = 0;
#pragma unroll
  for (int n = 0; n < kN; ++n) mine |= kept_of_quad(call, quad + g / 2 + n * step) << 4 * n;
  if (call.keys % 4 != 0) {
#pragma unroll
    for (int n = 0; n < kN; n += 4)
      if (n + g / 2 < kN) fifth |= kept_of_quad(call, quad + 4 + (n + g / 2) * step) << 4 * (n + g / 2);
    fifth |= __shfl_xor_sync(~0u, fifth, 8);
    fifth |= __shfl_xor_sync(~0u, fifth, 16);
  }
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = g + static_cast<int>((row + i % 2) * call.keys & 3), of = i / 2 * 2 + at / 4;  // element and quad
    uint32_t bits = __shfl_sync(~0u, mine, (of % 4 * 2 + i % 2) * 4 + t);
    if (i >= 2 && call.keys % 4 != 0) {
      const uint32_t fifths = __shfl_sync(~0u, fifth, i % 2 * 4 + t);
      if (of == 4) bits = fifths;
    }
    kept |= (bits >> at % 4 & 0x11111111) << i;
  }
  return kept;
}

}  // namespace godwit::detail
