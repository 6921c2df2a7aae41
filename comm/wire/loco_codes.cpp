#include "comm/wire/loco_codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/wire/pack_bits.h"
#include "comm/wire/sign_bits.h"
#include "engine/philox.h"

namespace godwit::loco {
namespace {

constexpr int64_t kChunk = 1024;  // values in the first-level cache, a multiple of those of a word

// Never NaN.
GODWIT_INLINE inline float clamp(float x, float low, float high) {
  return std::min(std::max(low, x), high);
}

// To nearest even: from 2²³ on float32 has no fractions. Exact for |x| < 2²²; others keep their sign.
GODWIT_INLINE inline float nearest(float x) {
  constexpr float kWhole = 12582912;  // 1.5 · 2²³
  return (clamp(x, -1e6f, 1e6f) + kWhole) - kWhole;
}

struct Chunk {
  const float* g;
  int8_t* e;
  int64_t n;
  Scales scales;
  Settings settings;
  const uint32_t* random;  // null: nearest
  int8_t* codes;           // of one bit not used,
  float* h;                // but these
  int32_t largest = 0;     // the bits of |g|, to find what is not finite
  int32_t saturated = 0, zero = 0;
};

template <bool kOneBit, bool kRandom>
GODWIT_INLINE inline void encode_chunk(Chunk& c) {
  const float s = c.scales.code, before = c.scales.error_before, after = c.scales.error_after;
  const float low = lowest(c.settings.bits), high = highest(c.settings.bits), unit = 1 / (2 * s);
  const float gain_new = c.settings.gain_new, gain_old = c.settings.gain_old, clip = c.settings.clip;
  const float* __restrict g = c.g;
  const uint32_t* __restrict random = c.random;
  int8_t *__restrict e = c.e, *__restrict codes = c.codes;
  float* __restrict kept = c.h;
  const int64_t n = c.n;  // a copy: stores of bytes might change what c refers to
  int32_t largest = 0, saturated = 0, zero = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(g[i]) & 0x7FFFFFFF);
    const float a = static_cast<float>(e[i]) / before;
    const float h = clamp(g[i], -clip, clip) + a;
    float decoded;
    if constexpr (kOneBit) {
      kept[i] = h;
      decoded = h >= 0 ? unit : -unit;
    } else {
      const float whole = nearest(h * s), code = clamp(whole, low, high);
      saturated += whole != code;
      zero += code == 0;
      codes[i] = static_cast<int8_t>(static_cast<int32_t>(code));
      decoded = code / s;
    }
    const float z = (gain_old * a + gain_new * (h - decoded)) * after;
    float left;
    if constexpr (kRandom) {
      const float drawn = z + static_cast<float>(static_cast<int32_t>(random[i] >> 8)) * 0x1p-24f;
      left = nearest(drawn);
      left -= static_cast<float>(left > drawn);  // rounded down
    } else {
      left = nearest(z);
    }
    e[i] = static_cast<int8_t>(static_cast<int32_t>(clamp(left, -128, 127)));
  }
  c.largest = largest, c.saturated = saturated, c.zero = zero;
}

GODWIT_INLINE inline void encode_chunk(Chunk& c) {
  if (c.settings.bits == 1) return c.random ? encode_chunk<true, true>(c) : encode_chunk<true, false>(c);
  c.random ? encode_chunk<false, true>(c) : encode_chunk<false, false>(c);
}

}  // namespace

Counts encode(const float* g, int8_t* e, int64_t n, const Scales& scales, const Settings& settings, const Draws& draws,
              int64_t element, uint32_t* words) {
  constexpr int32_t kInfinity = 0x7F800000;  // the bits of ∞; those of a NaN without its sign are larger
  const int bits = settings.bits, vector = detail::vector_bits();
  const bool random = settings.random && !settings.reset;
  alignas(64) uint32_t buffer[kChunk + kRandomSlack];
  alignas(64) uint64_t bytes[kChunk / 8];
  alignas(64) float h[kChunk];
  Counts counts;
  for (int64_t at = 0; at < n; at += kChunk) {
    Chunk chunk{g + at, e + at, std::min(kChunk, n - at), scales, settings, nullptr, reinterpret_cast<int8_t*>(bytes), h};
    if (random) chunk.random = random_words(draws, element + at, chunk.n, buffer);
    uint32_t* to = words + at * bits / 32;
    detail::run_wide(vector, [&](int64_t, int64_t) GODWIT_INLINE {
      encode_chunk(chunk);
      if (bits != 4) return;
      std::memset(chunk.codes + chunk.n, 0, static_cast<size_t>(kChunk - chunk.n));
      for (int64_t w = 0; w < (chunk.n + 7) / 8; ++w) to[w] = static_cast<uint32_t>(nibbles(bytes[w]));
    }, 0, chunk.n);
    if (bits == 1) pack_signs(Cpu{}, h, to, chunk.n);
    if (bits == 8) {
      to[(chunk.n - 1) / 4] = 0;
      std::memcpy(to, bytes, static_cast<size_t>(chunk.n));
    }
    if (settings.reset) std::memset(chunk.e, 0, static_cast<size_t>(chunk.n));
    counts.saturated += chunk.saturated;
    counts.zero += chunk.zero;
    counts.finite &= chunk.largest < kInfinity;
  }
  return counts;
}

namespace {

// Codes plus 8 are 0 … 15: the bytes of a 64-bit word hold the sums of 16 of them.
void sum_nibbles(const uint32_t* words, int64_t stride, int senders, int64_t n, int32_t* sums) {
  constexpr int kFit = 16;
  alignas(64) uint64_t bytes[kChunk / 8];
  const auto* small = reinterpret_cast<const uint8_t*>(bytes);
  std::fill_n(sums, n, 0);
  for (int first = 0; first < senders; first += kFit) {
    const int last = std::min(first + kFit, senders);
    const auto add = [&](int64_t, int64_t) GODWIT_INLINE {
      const int64_t used = (n + 7) / 8;
      for (int sender = first; sender < last; ++sender) {
        const uint32_t* from = words + sender * stride;
        for (int64_t w = 0; w < used; ++w)
          bytes[w] = (sender > first ? bytes[w] : 0) + from_nibbles(from[w] ^ 0x88888888u);
      }
      for (int64_t i = 0; i < n; ++i) sums[i] += small[i] - 8 * (last - first);
    };
    detail::run_wide(detail::vector_bits(), add, 0, n);
  }
}

void sum_bytes(const uint32_t* words, int64_t stride, int senders, int64_t n, int32_t* sums) {
  const auto add = [&](int64_t, int64_t) GODWIT_INLINE {
    for (int sender = 0; sender < senders; ++sender) {
      const auto* from = reinterpret_cast<const int8_t*>(words + sender * stride);
      for (int64_t i = 0; i < n; ++i) sums[i] = (sender > 0 ? sums[i] : 0) + from[i];
    }
  };
  detail::run_wide(detail::vector_bits(), add, 0, n);
}

void sum_bits(const uint32_t* words, int64_t stride, int senders, int64_t n, int32_t* sums) {
  constexpr int kFit = 64;
  const int64_t count = sign_words(n);
  uint32_t some[kFit * kChunk / 32];
  int16_t small[kChunk];
  std::fill_n(sums, n, 0);
  for (int first = 0; first < senders; first += kFit) {
    const int last = std::min(first + kFit, senders);
    for (int sender = first; sender < last; ++sender)
      std::copy_n(words + sender * stride, count, some + (sender - first) * count);
    sum_signs(Cpu{}, some, last - first, small, n);
    for (int64_t i = 0; i < n; ++i) sums[i] += small[i];
  }
}

}  // namespace

void sum_codes(const uint32_t* words, int64_t stride, int senders, int bits, int64_t n, int32_t* sums) {
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at);
    const uint32_t* from = words + at * bits / 32;
    if (bits == 1) sum_bits(from, stride, senders, count, sums + at);
    else if (bits == 4) sum_nibbles(from, stride, senders, count, sums + at);
    else sum_bytes(from, stride, senders, count, sums + at);
  }
}

}  // namespace godwit::loco
