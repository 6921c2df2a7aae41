// LoCo's passes over a bucket that is cut into pieces. Each piece has one scale and one owner. The CPU uses several
// threads; a GPU needs one launch per pass. CPU and GPU results are bit-identical.
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

constexpr int64_t kPiece = 8192;  // maximum number of values per piece

// Values [begin, begin + n) of a bucket, which use the scale of `block`. Their codes begin at word `code` of a message,
// and their sums at index `sum`.
struct Piece {
  int64_t begin, n, block, code, sum;  // see above
};

// Computes the size of each block: the largest |g|, or with `mean` the mean of |g|. It is limited to `clip` and rounded
// up to bfloat16.
void sizes(Cpu, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to);
void sizes(Cuda, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to);
// Sets each block's s from M, the largest of the sizes of `ranks` ranks (one row of `blocks` sizes per rank). s is 7/M
// for 4 bits, 127/M for 8 bits and 1/(2M) for 1 bit. If all sizes are 0, s is unchanged.
void agree(Cpu, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales);
void agree(Cuda, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales);

// Scales of all blocks of a bucket.
struct BlockScales {
  const float *now, *before;  // s of this step and of the previous step, per block
  float ratio;                // s_e / s
  // Scales of one block.
  GODWIT_INLINE Scales of(int64_t block) const {
    const float s = now[block];
    return {s, ratio * before[block], std::isinf(s) ? 0 : ratio * s};
  }
};

// Encodes all pieces with encode() of wire/loco_codes.h. `element` is the global offset of the bucket's first value.
// Returns the totals for counts_of(), on the device.
Tensor encode(Cpu, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const RngKey& rng, int64_t element, uint32_t* words);
Tensor encode(Cuda, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const RngKey& rng, int64_t element, uint32_t* words);
Counts counts_of(const Tensor& totals);  // for a tensor on a GPU, the host waits

// The messages of all senders. They are `stride` words apart.
struct Messages {
  const uint32_t* words;  // words of the first sender
  int64_t stride;         // distance between messages, in words
  int senders, bits;      // number of senders; bits per code

  // The divisor that turns a sum of codes into the mean.
  GODWIT_INLINE float divisor(float scale) const {
    const float s = scale * static_cast<float>(senders);
    return bits == 1 ? 2 * s : s;
  }
};

// g ← mean of the messages. Each block has one scale.
void mean_of_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g);
void mean_of_codes(Cuda, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g);

// Writes sums of codes as integers of `width` bytes (1, 2 or 4). The integers must be wide enough for the sums.
void sum_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums);
void sum_codes(Cuda, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums);
// g ← means from these sums. Uses only `senders` and `bits` of `messages`.
void mean_of_sums(Cpu, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g);
void mean_of_sums(Cuda, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g);

// The smallest bfloat16 >= x, for x >= 0. Shared by CPU and GPU.
GODWIT_INLINE inline bf16 rounded_up(float x) {
  return bf16(std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0xFFFFu) & 0xFFFF0000u));
}
// s of a block before its first gradient. A 1-bit code has no value for 0, but with s = infinity it means ±1/(2s) = 0.
constexpr float scale_before(int bits) { return bits == 1 ? std::numeric_limits<float>::infinity() : 1; }
// s for blocks whose largest size is `most`. Sizes below 2⁻¹⁰⁰ are treated as 2⁻¹⁰⁰.
GODWIT_INLINE inline float scale_of_size(float most, int bits) {
  const float size = most < 0x1p-100f ? 0x1p-100f : most;
  return bits > 1 ? highest(bits) / size : 1 / (2 * size);
}

}  // namespace godwit::loco
