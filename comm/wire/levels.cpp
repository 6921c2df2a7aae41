#include "comm/wire/levels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "comm/wire/pack_bits.h"

namespace godwit {
namespace {

static_assert(std::endian::native == std::endian::little, "a word's bytes hold its values in order");

constexpr int64_t kChunk = 1024;  // values in the first-level cache, a multiple of those of a word

template <class F>
GODWIT_INLINE inline void level_range(const float* x, int64_t n, float factor, float most, int8_t* levels,
                                      const F& round) {
  for (int64_t i = 0; i < n; ++i) {
    const float level = round(x[i] * factor, i);
    levels[i] = static_cast<int8_t>(static_cast<int32_t>(std::min(std::max(level, -most), most)));
  }
}

// To nearest even: from 2²³ on float32 has no fractions. Exact for |x| < 2²²; others keep their sign and are clamped.
GODWIT_INLINE inline float nearest(float x) {
  constexpr float kWhole = 12582912;  // 1.5 · 2²³
  const float within = std::min(std::max(x, -1e6f), 1e6f);
  return (within + kWhole) - kWhole;
}

// bytes: eight whole numbers in each.
GODWIT_INLINE inline void pack(const uint64_t* bytes, int64_t words, int bits, uint32_t* to) {
  if (bits == 8) {
    std::memcpy(to, bytes, static_cast<size_t>(words) * sizeof(uint32_t));
  } else if (bits == 4) {
    for (int64_t w = 0; w < words; ++w) to[w] = static_cast<uint32_t>(nibbles(bytes[w]));
  } else {
    for (int64_t w = 0; w < words; ++w)
      to[w] = static_cast<uint32_t>(pairs(bytes[2 * w]) | pairs(bytes[2 * w + 1]) << 16);
  }
}

GODWIT_INLINE inline void unpack(const uint32_t* from, int64_t words, int bits, uint64_t* bytes) {
  if (bits == 8) {
    std::memcpy(bytes, from, static_cast<size_t>(words) * sizeof(uint32_t));
  } else if (bits == 4) {
    for (int64_t w = 0; w < words; ++w) bytes[w] = from_nibbles(from[w]);
  } else {
    for (int64_t w = 0; w < words; ++w) {
      bytes[2 * w] = from_pairs(from[w] & 0xFFFF);
      bytes[2 * w + 1] = from_pairs(from[w] >> 16);
    }
  }
}

}  // namespace

void encode_levels(const float* x, int64_t n, float factor, int levels, const BlockDraw* draw, uint32_t* words) {
  const int bits = level_bits(levels), vector = detail::vector_bits();
  const float most = static_cast<float>(levels);
  alignas(64) uint32_t random[kChunk + kRandomSlack];
  alignas(64) uint64_t bytes[kChunk / 8];
  auto* whole = reinterpret_cast<int8_t*>(bytes);
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at), used = level_words(count, bits);
    const uint32_t* numbers = draw ? draw->words(at, count, random) : nullptr;
    std::fill(whole + count, whole + kChunk, int8_t{0});
    const auto chunk = [&](int64_t, int64_t) GODWIT_INLINE {
      if (numbers)
        level_range(x + at, count, factor, most, whole, [=](float v, int64_t i) GODWIT_INLINE {
          return __builtin_floorf(v + static_cast<float>(static_cast<int32_t>(numbers[i] >> 8)) * 0x1p-24f);
        });
      else level_range(x + at, count, factor, most, whole, [](float v, int64_t) GODWIT_INLINE { return nearest(v); });
      pack(bytes, used, bits, words + at * bits / 32);
    };
    detail::run_wide(vector, chunk, 0, count);
  }
}

void decode_levels(const uint32_t* words, int64_t n, float step, int levels, float* x) {
  const int bits = level_bits(levels), vector = detail::vector_bits();
  const int32_t sign = 1 << (bits - 1);
  alignas(64) uint64_t bytes[kChunk / 8];
  const auto* whole = reinterpret_cast<const uint8_t*>(bytes);
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at);
    const auto chunk = [&](int64_t, int64_t) GODWIT_INLINE {
      unpack(words + at * bits / 32, level_words(count, bits), bits, bytes);
      for (int64_t i = 0; i < count; ++i) x[at + i] = static_cast<float>((whole[i] ^ sign) - sign) * step;
    };
    detail::run_wide(vector, chunk, 0, count);
  }
}

void encode_scaled(const float* x, int64_t n, float scale, int levels, const BlockDraw* draw, uint32_t* code) {
  float factor = static_cast<float>(levels) / scale;
  if (!std::isfinite(factor)) factor = scale = 0;
  code[0] = std::bit_cast<uint32_t>(scale);
  encode_levels(x, n, factor, levels, draw, code + 1);
}

void decode_scaled(const uint32_t* code, int64_t n, int levels, float* x) {
  decode_levels(code + 1, n, std::bit_cast<float>(code[0]) / static_cast<float>(levels), levels, x);
}

}  // namespace godwit
