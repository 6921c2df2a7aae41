// exp and tanh without branches, for loops that vector_for compiles for wide vectors. float64 is the C library's.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/vector_loop.h"

namespace godwit {

// e^(x + low), low small beside 1: a second part of an exponent whose rounding would show. The relative error is below
// 1.4 · 2⁻²⁴; 0 below -87 (where e^x < 2⁻¹²⁵), infinity from 88.73 on, NaN stays NaN.
GODWIT_INLINE inline float exp_of(float x, float low = 0) {
  // x = n ln 2 + r; the sum with 1.5 · 2²³ rounds n to the last bits of its representation. ln 2 in two parts, the
  // first exact in 10 bits. e^r = 1 + r + r² P(r), P fitted on |r| ≤ ln 2 / 2 to 3e-9 of e^r.
  const float shifted = x * 0x1.715476p0f + 0x1.8p23f, n = shifted - 0x1.8p23f;
  const float r = ((x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f) + low;
  float p = 0.0013814581f;
  p = p * r + 0.008368728f;
  p = p * r + 0.04166839f;
  p = p * r + 0.16666521f;
  p = p * r + 0.49999994f;
  const float e = (p * (r * r) + r) + 1;
  const float half = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 126u) << 23);  // 2ⁿ⁻¹
  const float value = e * half * 2;
  const float bounded = x > 88.72284f ? __builtin_inff() : value;
  return x < -87 ? 0 : bounded;
}

GODWIT_INLINE inline double exp_of(double x, double low = 0) { return std::exp(x + low); }

// Within 2 units in the last place.
GODWIT_INLINE inline float tanh_of(float x) {
  const float size = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu), square = x * x;
  float p = -0.0057047578f;  // tanh(x) = x + x³ P(x²), fitted on |x| ≤ 0.625 to 5e-9 of tanh(x)
  p = p * square + 0.020638894f;
  p = p * square + -0.05373966f;
  p = p * square + 0.13331442f;
  p = p * square + -0.3333328f;
  const float near = size + size * (square * p), far = 1 - 2 / (exp_of(2 * size) + 1);
  const float result = size < 0.625f ? near : far;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | (std::bit_cast<uint32_t>(x) & 0x80000000u));
}

GODWIT_INLINE inline double tanh_of(double x) { return std::tanh(x); }

}  // namespace godwit
