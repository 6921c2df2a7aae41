// Wire format for evenly spaced levels: integers of 2, 4 or 8 bits in two's complement. Value j is at bit (bits·j) mod
// 32, least significant first, of 32-bit word (bits·j) / 32. Unused bits of the last word are 0.
#pragma once
#include <cstdint>

#include "comm/compress/compressor.h"

namespace godwit {

constexpr int64_t level_words(int64_t n, int bits) { return (n * bits + 31) / 32; }  // number of words for n values
// Number of bits for an integer in −levels … levels, 1 <= levels <= 127.
constexpr int level_bits(int levels) { return levels <= 1 ? 2 : levels <= 7 ? 4 : 8; }

// Encodes x·factor, clamped to −levels … levels. With `rng`, rounding is stochastic: a random number in [0, 1) is added
// and the sum is rounded down. Without `rng`, rounding is to nearest even. Single-threaded.
void encode_levels(const float* x, int64_t n, float factor, int levels, const BlockRng* rng, uint32_t* words);
// x = integer · step.
void decode_levels(const uint32_t* words, int64_t n, float step, int levels, float* x);

// A block's payload consists of its float32 scale and its levels. Level l means scale·l/levels. If the scale is so
// small that levels/scale overflows (for 127 levels: below 4e−37), the scale and all levels are sent as 0.
void encode_scaled(const float* x, int64_t n, float scale, int levels, const BlockRng* rng, uint32_t* payload);
void decode_scaled(const uint32_t* payload, int64_t n, int levels, float* x);  // inverse of encode_scaled()
// Length of a payload for n values.
constexpr int64_t scaled_words(int64_t n, int levels) { return 1 + level_words(n, level_bits(levels)); }

}  // namespace godwit
