// LoCo's passes over a bucket cut into pieces, each with one scale and one owner: threaded on the CPU, one launch per
// pass on a GPU. Both give the same bits.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "comm/segment.h"
#include "comm/compress/table.h"
#include "comm/compress/wire/loco_codes.h"
#include "engine/half.h"
#include "engine/inline.h"

namespace godwit::loco {

constexpr int64_t kPiece = 8192;  // maximum values per piece

// Values [begin, begin + n) of a bucket, which use the scale of `block`. Their codes begin at word `code` of a message,
// their sums at index `sum`.
struct Piece {
  int64_t begin, n, block, code, sum;  // see above
};

// Size of each block: the largest |g|, or with `mean` the mean of |g|, limited to `clip` and rounded up to bfloat16.
void sizes(Cpu, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to);
void sizes(Cuda, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to);
// Sets each block's s from M, the largest of the sizes of `ranks` ranks (one row of `blocks` sizes per rank): 7/M for 4
// bits, 127/M for 8, 1/(2M) for 1. Keeps the old s if all sizes are 0.
void agree(Cpu, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales);
void agree(Cuda, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales);

// Scales of all blocks.
struct BlockScales {
  const float *now, *before;  // s of this step and of the step before, per block
  float ratio;                // s_e / s
  // Of one block.
  GODWIT_INLINE Scales of(int64_t block) const {
    const float s = now[block];
    return {s, ratio * before[block], std::isinf(s) ? 0 : ratio * s};
  }
};

// Encodes all pieces as encode() in wire/loco_codes.h does; `element` is the global offset of the bucket's first value.
// Returns the argument of counts_of(), on the device.
Tensor encode(Cpu, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const RngKey& rng, int64_t element, uint32_t* words);
Tensor encode(Cuda, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const RngKey& rng, int64_t element, uint32_t* words);
Counts counts_of(const Tensor& totals);  // for a tensor on a GPU the host waits

// The messages of all senders, `stride` words apart.
struct Messages {
  const uint32_t* words;  // of the first sender
  int64_t stride;         // in words
  int senders, bits;      // number of senders; bits per code

  // Divisor that turns a sum of codes into the mean.
  GODWIT_INLINE float divisor(float scale) const {
    const float s = scale * static_cast<float>(senders);
    return bits == 1 ? 2 * s : s;
  }
};

// g ← mean of the messages, with one scale per block.
void mean_of_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g);
void mean_of_codes(Cuda, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g);

// Writes sums of codes as integers of `width` bytes (1, 2 or 4), which must be wide enough.
void sum_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums);
void sum_codes(Cuda, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums);
// g ← means from these sums; uses only `senders` and `bits` of `messages`.
void mean_of_sums(Cpu, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g);
void mean_of_sums(Cuda, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g);

// Shared by CPU and GPU: the smallest bfloat16 >= x, for x >= 0.
GODWIT_INLINE inline bf16 rounded_up(float x) {
  return bf16(std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0xFFFFu) & 0xFFFF0000u));
}
// s of a block before its first gradient. A 1-bit code has no value for 0, but with s = infinity it means ±1/(2s) = 0.
constexpr float scale_before(int bits) { return bits == 1 ? std::numeric_limits<float>::infinity() : 1; }
// s for blocks whose largest size is `most`, which counts as at least 2⁻¹⁰⁰.
GODWIT_INLINE inline float scale_of_size(float most, int bits) {
  const float size = most < 0x1p-100f ? 0x1p-100f : most;
  return bits > 1 ? highest(bits) / size : 1 / (2 * size);
}

}  // namespace godwit::loco
