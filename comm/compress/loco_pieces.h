// LoCo's passes over a bucket that is cut into pieces, each of one scale and one owner: on the CPU's threads, or in one
// launch on a GPU. The same bits on both.
#pragma once
#include <bit>
#include <cstdint>

#include "comm/segment.h"
#include "comm/compress/table.h"
#include "comm/compress/wire/loco_codes.h"
#include "engine/half.h"
#include "engine/inline.h"

namespace godwit::loco {

constexpr int64_t kPiece = 8192;  // values at most

// Values [begin, begin + n) of a bucket, which share the scale of `block`. Their codes begin at word `code` of a
// message, their sums at place `sum`.
struct Piece {
  int64_t begin, n, block, code, sum;
};

// Of each block the largest |g|, or with `mean` the mean of |g|, at most `clip`, rounded up to bfloat16.
void sizes(Cpu, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to);
void sizes(Cuda, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to);
// s of each block by the largest of `ranks` such sizes M, which lie `blocks` apart: 7/M, 127/M, of one bit 1/(2M).
// Where all are 0 it stays.
void agree(Cpu, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales);
void agree(Cuda, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales);

// Scales by block.
struct BlockScales {
  const float *now, *before;  // s; that of the step before
  float ratio;                // s_e of it
  GODWIT_INLINE Scales of(int64_t block) const { return {now[block], ratio * before[block], ratio * now[block]}; }
};

// encode() of all pieces; `element` is the bucket's first. On a GPU the host waits for the counts.
Counts encode(Cpu, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const Draws& draws, int64_t element, uint32_t* words);
Counts encode(Cuda, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const Draws& draws, int64_t element, uint32_t* words);

// Messages of all senders, `stride` words apart.
struct Messages {
  const uint32_t* words;
  int64_t stride;
  int senders, bits;

  // What the sum of codes is divided by.
  GODWIT_INLINE float divisor(float scale) const {
    const float s = scale * static_cast<float>(senders);
    return bits == 1 ? 2 * s : s;
  }
};

// g = the mean, by the scales of the blocks.
void mean_of_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g);
void mean_of_codes(Cuda, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g);

// Sums of codes as whole numbers of `width` bytes, 1, 2 or 4, which hold them.
void sum_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums);
void sum_codes(Cuda, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums);
// The means by such sums; of `messages` only their number and bits are read.
void mean_of_sums(Cpu, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g);
void mean_of_sums(Cuda, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g);

// Shared by the CPU and a GPU: the smallest bfloat16 that is not below x >= 0.
GODWIT_INLINE inline bf16 rounded_up(float x) {
  return bf16(std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0xFFFFu) & 0xFFFF0000u));
}
GODWIT_INLINE inline float scale_of_size(float most, int bits) {
  const float size = most < 0x1p-100f ? 0x1p-100f : most;
  return bits > 1 ? highest(bits) / size : 1 / (2 * size);
}

}  // namespace godwit::loco
