// Natural compression (Horváth et al. 2019): rounds each value at random to one of its two neighboring powers of two,
// so that the expectation is the value. One byte stores the sign and the exponent.
#pragma once
#include <godwit/godwit.h>

#include <algorithm>
#include <cmath>

class NaturalCompressor : public godwit::Compressor {
 public:
  int64_t payload_words(int64_t n) const override { return (n + 3) / 4; }

  void encode(const float* x, int64_t n, const godwit::BlockRng& rng, uint32_t* payload) const override {
    constexpr int64_t kPiece = 1024;
    uint32_t buffer[kPiece + godwit::kRandomSlack];
    std::fill_n(payload, payload_words(n), 0u);
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      const int64_t count = std::min(kPiece, n - begin);
      const uint32_t* random = rng.words(begin, count, buffer);
      for (int64_t i = 0; i < count; ++i)
        payload[(begin + i) / 4] |= byte_of(x[begin + i], godwit::to_unit(random[i])) << 8 * ((begin + i) % 4);
    }
  }

  void decode(const uint32_t* payload, int64_t n, float* x) const override {
    for (int64_t i = 0; i < n; ++i) {
      const int byte = payload[i / 4] >> 8 * (i % 4) & 0xFF, exponent = byte & 0x7F;
      const float size = exponent == 0 ? 0 : std::ldexp(1.0f, exponent - kZero);
      x[i] = byte & 0x80 ? -size : size;
    }
  }

 private:
  static constexpr int kZero = 64;  // code of the exponent of 1; code 0 is the value 0 and all values below 2⁻⁶³

  static uint32_t byte_of(float x, float u) {
    int exponent;
    const float fraction = std::frexp(std::abs(x), &exponent);  // |x| = fraction·2^exponent, fraction in [½, 1)
    if (u >= 2 * fraction - 1) --exponent;
    const int code = x == 0 ? 0 : std::clamp(exponent + kZero, 0, 127);
    return static_cast<uint32_t>(code | (std::signbit(x) ? 0x80 : 0));
  }
};
