// Softmax of a warp's queries over tiles of keys (Dao 2023, "FlashAttention-2").
#pragma once
#include <cfloat>
#include <cmath>

#include "autograd/ops/attention/cuda/attention_key_tiles.h"
#include "autograd/ops/attention/cuda/attention_own.h"

namespace godwit::detail {

// Sum or maximum over the four lanes that share a row.
template <class Op>
__device__ float across(float x, Op op) {
  x = op(x, __shfl_xor_sync(~0u, x, 1));
  return op(x, __shfl_xor_sync(~0u, x, 2));
}

// For 16 · kM queries starting at `first` and 8 · kN keys of the tile, sets the scores of keys that are not attended to
// -infinity.
template <int kM, int kN>
__device__ void mask_scores(const AttentionView& call, const KeyTile& tile, int64_t first, float (&s)[kM][kN][4]) {
  if (tile.attended != lowest(8 * kN)) {
    const uint64_t attended = tile.attended >> 2 * (lane() % 4);
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if ((attended >> (8 * n + i % 2) & 1) == 0)
#pragma unroll
          for (int m = 0; m < kM; ++m) s[m][n][i] = -INFINITY;
  }
  if (tile.first + 8 * kN - 1 > first + call.past) {  // some of the queries do not attend all keys
    const auto last = static_cast<int>(first + lane() / 4 + call.past - tile.first - 2 * (lane() % 4));
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (8 * n + i % 2 > last + 16 * m + i / 2 * 8) s[m][n][i] = -INFINITY;
  }
}

// Whether all queries of the warp, starting at `first`, attend all 8 · kN keys of the tile.
template <int kN>
__device__ bool attend_all(const AttentionView& call, const KeyTile& tile, int64_t first) {
  return tile.attended == lowest(8 * kN) && tile.first + 8 * kN - 1 <= first + call.past;
}

// The largest score and the sum of the exponentials of each query. Index r = 1 is for the lower eight of sixteen
// queries.
template <int kM>
struct Softmax {
  float largest[kM][2], sum[kM][2] = {};

  __device__ Softmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) largest[m][0] = largest[m][1] = -FLT_MAX;
  }

  // Adds the scores of a tile. p becomes the exponentials after dropout by `kept` (KeyTiles::read_kept()). Returns the
  // factor for earlier exponentials in `shrunk`.
  template <bool kDrops, int kN>
  __device__ void add(float scale, const float (&s)[kM][kN][4], const uint32_t (&kept)[kM][2][kN / 4],
                      uint32_t (&p)[kN / 2][kM][4], float (&shrunk)[kM][2]) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float most = largest[m][r];
#pragma unroll
        for (int n = 0; n < kN; ++n) most = fmaxf(most, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
        most = across(most, [](float a, float b) { return fmaxf(a, b); });
        const float shift = most * scale;
        shrunk[m][r] = exp2_approximate(largest[m][r] * scale - shift);
        largest[m][r] = most;
        sum[m][r] *= shrunk[m][r];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          float e[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            e[c] = exp2_approximate(s[m][n][2 * r + c] * scale - shift);
            sum[m][r] += e[c];
            if (kDrops && (kept[m][r][n / 4] >> (8 * (n % 4) + c) & 1) == 0) e[c] = 0;
          }
          p[n / 2][m][n % 2 * 2 + r] = pack_bf16(e[0], e[1]);
        }
      }
    }
  }

  // Writes the log sums of the queries starting at `first`. Returns the factors that normalize sums of exponentials in
  // `inverse`.
  __device__ void finish(const AttentionView& call, const AttentionHeadView& head, int64_t first, float scale,
                         float* log_sums, float (&inverse)[kM][2]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float total = across(sum[m][r], [](float a, float b) { return a + b; });
        inverse[m][r] = total == 0 ? 0 : call.keeps / total;
        const int64_t row = first + 16 * m + lane() / 4 + 8 * r;
        if (lane() % 4 == 0 && row < call.queries)
          log_sums[head.number(call) * call.queries + row] = largest[m][r] * scale * kLn2 + logf(total);
      }
  }
};

}  // namespace godwit::detail
