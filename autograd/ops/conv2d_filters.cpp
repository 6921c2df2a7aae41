// oneDNN's own reorders to these layouts take four times as long.
#include "autograd/ops/conv2d_filters.h"

#include <algorithm>

#include "engine/vector_loop.h"

namespace godwit::detail {
namespace {

constexpr int64_t kTile = 16;   // values of a line of memory
constexpr int64_t kAhead = 64;  // so far the rows are fetched ahead

struct Job {
  const float* w;
  uint32_t* to;  // pairs of bfloat16
  int64_t o, taps, i, block;
  int64_t kw, by_o, by_i, by_kh, by_kw;  // strides of `to`, in pairs

  int64_t tap(int64_t t) const { return t / kw * by_kh + t % kw * by_kw; }
};

GODWIT_INLINE inline uint32_t pair_of(float low, float high) {
  return static_cast<uint32_t>(bf16_bits(low)) | static_cast<uint32_t>(bf16_bits(high)) << 16;
}

// [o / block][i / 2][block][2], as forward convolutions read them: a transposition of pairs, 16 × 16 at a time.
GODWIT_INLINE inline void by_inputs(const Job& j, int64_t begin, int64_t end) {
  uint32_t tile[kTile][kTile];
  for (int64_t strip = begin; strip < end; ++strip) {  // of 16 outputs
    const int64_t first = strip * kTile, count = std::clamp<int64_t>(j.o - first, 0, kTile);
    uint32_t* const strip_to = j.to + first / j.block * j.by_o + first % j.block;
    for (int64_t t = 0; t < j.taps; ++t)
      for (int64_t i = 0; i < j.i; i += 2 * kTile) {
        const int64_t pairs = std::min(kTile, (j.i - i) / 2);
        for (int64_t r = 0; r < kTile; ++r) {
          if (r >= count) {
            for (int64_t p = 0; p < kTile; ++p) tile[r][p] = 0;
            continue;
          }
          const float* from = j.w + ((first + r) * j.taps + t) * j.i + i;
          __builtin_prefetch(from + kAhead);
          __builtin_prefetch(from + kAhead + kTile);
          if (pairs == kTile)
            for (int64_t p = 0; p < kTile; ++p) tile[r][p] = pair_of(from[2 * p], from[2 * p + 1]);
          else
            for (int64_t p = 0; p < pairs; ++p) tile[r][p] = pair_of(from[2 * p], from[2 * p + 1]);
        }
        uint32_t* to = strip_to + j.tap(t) + i / 2 * j.by_i;
        for (int64_t p = 0; p < pairs; ++p, to += j.by_i)
          for (int64_t r = 0; r < kTile; ++r) to[r] = tile[r][p];
      }
  }
}

// [o / 16][i / 16][8][16][2 of o], as data gradients read them.
GODWIT_INLINE inline void by_outputs(const Job& j, int64_t begin, int64_t end) {
  for (int64_t strip = begin; strip < end; ++strip)  // of 16 outputs
    for (int64_t t = 0; t < j.taps; ++t)
      for (int64_t i = 0; i < j.i; i += kTile) {
        uint32_t* to = j.to + strip * j.by_o + j.tap(t) + i / kTile * j.by_i;
        for (int64_t r = 0; r < kTile; r += 2, to += kTile) {
          const float* even = j.w + ((strip * kTile + r) * j.taps + t) * j.i + i;
          const float* odd = even + j.taps * j.i;
          __builtin_prefetch(even + kAhead);
          __builtin_prefetch(odd + kAhead);
          for (int64_t l = 0; l < kTile; ++l) to[l] = pair_of(even[l], odd[l]);
        }
      }
}

}  // namespace

bool arrange_filters(const Tensor& w, const FilterBlocks& blocks, const Tensor& to) {
  using Inner = std::vector<std::pair<int, int64_t>>;
  const Shape& s = w.shape();
  const int64_t o = s[0], i = s[3], outputs = blocks.padded[0];
  if (blocks.padded[1] != i || i % kTile != 0) return false;
  for (const int64_t stride : blocks.strides)
    if (stride % 2 != 0) return false;
  Job job{w.data<float>(),
          static_cast<uint32_t*>(to.raw()),
          o,
          s[1] * s[2],
          i,
          0,
          s[2],
          blocks.strides[0] / 2,
          blocks.strides[1] / 2,
          blocks.strides[2] / 2,
          blocks.strides[3] / 2};
  if (blocks.inner == Inner{{0, 8}, {1, 16}, {0, 2}} && outputs == o) {
    vector_for(o / kTile, 1, [&](int64_t begin, int64_t end) GODWIT_INLINE { by_outputs(job, begin, end); });
    return true;
  }
  if (blocks.inner.size() != 2 || blocks.inner[0].first != 0 || blocks.inner[1] != std::pair<int, int64_t>{1, 2})
    return false;
  job.block = blocks.inner[0].second;
  if (job.block % kTile != 0) return false;
  vector_for(outputs / kTile, 1, [&](int64_t begin, int64_t end) GODWIT_INLINE { by_inputs(job, begin, end); });
  return true;
}

}  // namespace godwit::detail
