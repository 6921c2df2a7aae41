#include "comm/compress/levels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/levels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "comm/compress/wire/prefetch.h"
#include "comm/compress/wire/pack_bits.h"
#include "comm/compress/wire/round_to_int-inl.h"

#ifndef GODWIT_COMM_LEVELS_CHUNK
#define GODWIT_COMM_LEVELS_CHUNK
namespace godwit {
static_assert(std::endian::native == std::endian::little, "a word's bytes hold its values in order");
constexpr int64_t kLevelChunk = 2048;  // values that fit the L1 cache; a multiple of the values per word
constexpr int64_t kDecodeChunk = 256;  // smaller for decoding, whose output is not in the cache yet
}  // namespace godwit
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rounds x·factor to integers in bytes, kGroup vectors at a time.
template <bool kRandom>
HWY_INLINE void level_range(const float* x, int64_t n, float factor, float most, const uint32_t* random,
                            int8_t* levels) {
  const Floats d;
  const hn::Rebind<uint32_t, Floats> unsigned_whole;
  const Bytes bytes;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), group = kGroup * lanes;
  const auto least = hn::Set(bytes, static_cast<int8_t>(-most));
  const auto encode = [&](const float* from, const uint32_t* numbers, int8_t* to) HWY_ATTR {
    hn::Vec<Wholes> whole[kGroup];
    for (int j = 0; j < kGroup; ++j) {
      auto v = hn::Mul(hn::LoadU(d, from + j * lanes), hn::Set(d, factor));
      if constexpr (kRandom) {
        // The product is exact, so fusing it with the addition does not change the result.
        const auto top = hn::ShiftRight<8>(hn::LoadU(unsigned_whole, numbers + j * lanes));
        v = hn::MulAdd(hn::ConvertTo(d, hn::BitCast(Wholes(), top)), hn::Set(d, 0x1p-24f), v);
      }
      whole[j] = round_to_int<kRandom>(v, most);
    }
    hn::StoreU(hn::Max(to_bytes(whole), least), bytes, to);
  };
  int64_t i = 0;
  for (; i + group <= n; i += group) encode(x + i, kRandom ? random + i : nullptr, levels + i);
  if (i == n) return;
  HWY_ALIGN float rest[64] = {};
  HWY_ALIGN uint32_t numbers[64] = {};
  std::copy_n(x + i, n - i, rest);
  if constexpr (kRandom) std::copy_n(random + i, n - i, numbers);
  encode(rest, numbers, levels + i);
}

// bytes: eight integers in each element.
HWY_INLINE void pack(const uint64_t* bytes, int64_t words, int bits, uint32_t* to) {
  if (bits == 8) {
    std::memcpy(to, bytes, static_cast<size_t>(words) * sizeof(uint32_t));
  } else if (bits == 4) {
    pack_nibbles(reinterpret_cast<const uint16_t*>(bytes), 4 * words, reinterpret_cast<uint8_t*>(to));
  } else {
    for (int64_t w = 0; w < words; ++w)
      to[w] = static_cast<uint32_t>(pairs(bytes[2 * w]) | pairs(bytes[2 * w + 1]) << 16);
  }
}

// Encodes at most kLevelChunk values.
void encode_chunk(const float* x, int64_t n, float factor, int levels, const uint32_t* random, uint32_t* words) {
  HWY_ALIGN uint64_t bytes[kLevelChunk / 8];
  auto* whole = reinterpret_cast<int8_t*>(bytes);
  const float most = static_cast<float>(levels);
  if (random) level_range<true>(x, n, factor, most, random, whole);
  else level_range<false>(x, n, factor, most, nullptr, whole);
  std::fill(whole + n, whole + kLevelChunk, int8_t{0});
  pack(bytes, level_words(n, level_bits(levels)), level_bits(levels), words);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {
namespace {

HWY_EXPORT(encode_chunk);

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

void encode_levels(const float* x, int64_t n, float factor, int levels, const BlockRng* rng, uint32_t* words) {
  HWY_ALIGN uint32_t buffer[kLevelChunk + kRandomSlack];
  for (int64_t at = 0; at < n; at += kLevelChunk) {
    const int64_t count = std::min(kLevelChunk, n - at);
    const uint32_t* random = rng ? rng->words(at, count, buffer, x + at + count) : nullptr;
    HWY_DYNAMIC_DISPATCH(encode_chunk)(x + at, count, factor, levels, random, words + at * level_bits(levels) / 32);
  }
}

void decode_levels(const uint32_t* words, int64_t n, float step, int levels, float* x) {
  const int bits = level_bits(levels), vector = detail::vector_bits();
  const int32_t sign = 1 << (bits - 1);
  alignas(64) uint64_t bytes[kDecodeChunk / 8];
  const auto* whole = reinterpret_cast<const uint8_t*>(bytes);
  for (int64_t at = 0; at < n; at += kDecodeChunk) {
    const int64_t count = std::min(kDecodeChunk, n - at);
    for (int64_t i = 0; i < count; i += kLineValues) prefetch(x + at + i + kPageValues);
    const auto chunk = [&](int64_t, int64_t) GODWIT_INLINE {
      unpack(words + at * bits / 32, level_words(count, bits), bits, bytes);
      for (int64_t i = 0; i < count; ++i) x[at + i] = static_cast<float>((whole[i] ^ sign) - sign) * step;
    };
    detail::run_wide(vector, chunk, 0, count);
  }
}

void encode_scaled(const float* x, int64_t n, float scale, int levels, const BlockRng* rng, uint32_t* payload) {
  float factor = static_cast<float>(levels) / scale;
  if (!std::isfinite(factor)) factor = scale = 0;
  payload[0] = std::bit_cast<uint32_t>(scale);
  encode_levels(x, n, factor, levels, rng, payload + 1);
}

void decode_scaled(const uint32_t* payload, int64_t n, int levels, float* x) {
  decode_levels(payload + 1, n, std::bit_cast<float>(payload[0]) / static_cast<float>(levels), levels, x);
}

}  // namespace godwit
#endif  // HWY_ONCE
