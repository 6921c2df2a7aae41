// Evenly spaced levels on the wire: whole numbers of 2, 4 or 8 bits in two's complement, value j at bit (bits·j) mod 32
// (least significant first) of 32-bit word (bits·j) / 32; the unused bits of the last word are 0.
#pragma once
#include <cstdint>

#include "comm/compress/compressor.h"

namespace godwit {

constexpr int64_t level_words(int64_t n, int bits) { return (n * bits + 31) / 32; }
// Of the whole numbers −levels … levels, 1 <= levels <= 127.
constexpr int level_bits(int levels) { return levels <= 1 ? 2 : levels <= 7 ? 4 : 8; }

// x·factor, rounded down after a random number in [0, 1) was added, or, with `draw` null, to nearest even; then clamped
// to −levels … levels. One thread.
void encode_levels(const float* x, int64_t n, float factor, int levels, const BlockDraw* draw, uint32_t* words);
// The whole numbers times step.
void decode_levels(const uint32_t* words, int64_t n, float step, int levels, float* x);

// A block's code: its scale (float32), then its levels, which stand for scale·level/levels. A scale so small that
// levels/scale overflows, below 4e−37, sends zeros.
void encode_scaled(const float* x, int64_t n, float scale, int levels, const BlockDraw* draw, uint32_t* code);
void decode_scaled(const uint32_t* code, int64_t n, int levels, float* x);
constexpr int64_t scaled_words(int64_t n, int levels) { return 1 + level_words(n, level_bits(levels)); }

}  // namespace godwit
