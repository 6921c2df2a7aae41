// Branch-free exp and tanh for loops that vector_for vectorizes. The float64 versions call the C library.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/inline.h"

namespace godwit {

// condition ? a : b with bit masks. Both values are computed, because a branch would keep the loop scalar.
GODWIT_INLINE inline float choose(bool condition, float a, float b) {
  const uint32_t mask = condition ? ~0u : 0u;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & mask) | (std::bit_cast<uint32_t>(b) & ~mask));
}
GODWIT_INLINE inline double choose(bool condition, double a, double b) { return condition ? a : b; }

// Computes half · e^r = half · (1 + r + r² P(r)). P is fitted on |r| ≤ ln 2 / 2 to within 3e-9 of e^r. Used by
// half_exp().
GODWIT_INLINE inline float times_exp(float half, float r) {
  const float square = r * r;
  const float p =
      (0.49999994f + 0.16666521f * r) + square * ((0.04166839f + 0.008368728f * r) + square * 0.0013814581f);
  return (1 + (r + square * p)) * half;
}

// e^x / 2 for x in [-87.5, 89], or e^(x + low) / 2. `low` is a second part of the exponent, much smaller than 1, that x
// cannot represent. The relative error is below 1.8 · 2⁻²⁴. Returns 0 for x < -86.99, where e^x < 2⁻¹²⁵.
template <class... Low>
GODWIT_INLINE inline float half_exp(float x, Low... low) {
  // x = n ln 2 + r. Adding 1.5 · 2²³ rounds n into the low bits. ln 2 is split into two parts; the first is exact in 10
  // bits. `half` is 2ⁿ⁻¹, or 0 for n = -126.
  const float shifted = x * 0x1.715476p0f + 0x1.8p23f, n = shifted - 0x1.8p23f;
  const float r = (((x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f) + ... + low);
  return times_exp(std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 126u) << 23), r);
}

// e^x for every x, with the accuracy of half_exp(). Returns infinity for x ≥ 88.73; NaN stays NaN.
GODWIT_INLINE inline float exp_of(float x) {
  const float above = choose(x < -87.5f, -87.5f, x);
  return half_exp(choose(above > 89, 89, above)) * 2;
}
GODWIT_INLINE inline double exp_of(double x) { return std::exp(x); }

// e^x or e^(x + low) for x ≤ 88, without the upper clamp. In softmax, x ≤ 0.
template <class... Low>
GODWIT_INLINE inline float exp_below(float x, Low... low) {
  return half_exp(choose(x < -87.5f, -87.5f, x), low...) * 2;
}
template <class... Low>
GODWIT_INLINE inline double exp_below(double x, Low... low) {
  return std::exp((x + ... + low));
}

// The error is at most 2 units in the last place.
GODWIT_INLINE inline float tanh_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float whole = std::bit_cast<float>(bits & 0x7FFFFFFFu), size = choose(whole > 10, 10, whole),
              square = size * size;
  // tanh(x) = x + x³ P(x²), fitted on |x| ≤ 0.625 to 5e-9 of tanh(x)
  const float p = (-0.3333328f + 0.13331442f * square) +
                  square * square * ((-0.05373966f + 0.020638894f * square) + square * square * -0.0057047578f);
  const float near = size + size * (square * p), far = 1 - 1 / (half_exp(2 * size) + 0.5f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(choose(size < 0.625f, near, far)) | (bits & 0x80000000u));
}

GODWIT_INLINE inline double tanh_of(double x) { return std::tanh(x); }  // tanh of the C library

}  // namespace godwit
