// gelu and its derivative for one element. Only gelu.cpp and gelu.cu include this header.
#pragma once
#include <numbers>

#include "autograd/ops/gelu.h"
#include "engine/vector_math.h"

namespace godwit::detail {

// Parts of one form of gelu. With a = |x|, gelu(-a) = -a · tail and gelu(a) = a - a · tail. The derivative is tail - a
// · bend at -a, and 1 - (tail - a · bend) at a. Both signs therefore keep their relative accuracy.
template <class C>
struct GeluLower {
  C tail, bend;
};

// Functions with the accuracy of C.
struct GeluMath {
  // e^(-a²/2) / 2. a² / 2 is split into the exact square of a 12-bit value and a remainder.
  GODWIT_INLINE static float half_normal(float a) {
    const float top = std::bit_cast<float>(std::bit_cast<uint32_t>(a) & 0xFFFFF000u);
    return half_exp(-0.5f * (top * top), -0.5f * ((a - top) * (a + top)));
  }
  template <class C>
  GODWIT_INLINE static C exp(C x) {
    return exp_below(x);
  }
  template <class C>
  GODWIT_INLINE static C inverse(C x) {
    return 1 / x;
  }
};

// Φ(-a) and φ(a) for a in [0, 13.2]. Φ(-a) = e^(-a²/2) · Q(a).
template <class Math>
GODWIT_INLINE inline GeluLower<float> gelu_lower_erf(float a) {
  const float half = Math::half_normal(a);
  // 2 Q(a) = P(u) / (a + 3) with u = (a - 3) / (a + 3), fitted on [0, 13.2] with a relative error of 4e-8.
  const float q = Math::inverse(a + 3), u = (a - 3) * q, u2 = u * u, u4 = u2 * u2;
  const float p0 = (1.4581673f + -1.0186645f * u) + u2 * (0.46003848f + -0.09451476f * u);
  const float p4 = (-0.02095888f + 0.013860606f * u) + u2 * (0.002155302f + -0.001825264f * u);
  return {half * ((p0 + u4 * (p4 + u4 * -0.00054598786f)) * q), half * 0.79788456f};
}

template <class Math>
GODWIT_INLINE inline GeluLower<double> gelu_lower_erf(double a) {
  return {0.5 * std::erfc(a / std::numbers::sqrt2), std::exp(-0.5 * a * a) / std::sqrt(2 * std::numbers::pi)};
}

// σ(-2u(a)) and its derivative. 2u = 2 √(2/π) · (a + 0.044715 a³), which stays below 88 for clamped a.
template <class Math, class C>
GODWIT_INLINE inline GeluLower<C> gelu_lower_tanh(C a) {
  constexpr C kFactor = C(2 * 0.79788456080286535588), kCubic = C(0.044715);
  const C square = a * a, e = Math::exp(kFactor * a * (1 + kCubic * square)), tail = Math::inverse(1 + e);
  return {tail, e * tail * tail * (kFactor * (1 + 3 * kCubic * square))};
}

template <Gelu form, class Math, class C>
GODWIT_INLINE inline GeluLower<C> gelu_lower(C a) {
  if constexpr (form == Gelu::erf) return gelu_lower_erf<Math>(a);
  else return gelu_lower_tanh<Math>(a);
}

// |x|, clamped to the value beyond which gelu is 0 or x. NaN stays NaN.
template <Gelu form>
GODWIT_INLINE inline float gelu_size(float x) {
  constexpr float kFar = form == Gelu::erf ? 13.2f : 10;
  const float size = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu);
  return choose(size > kFar, kFar, size);
}
template <Gelu form>
GODWIT_INLINE inline double gelu_size(double x) {
  constexpr double kFar = form == Gelu::erf ? 40 : 20;
  return choose(std::abs(x) > kFar, kFar, std::abs(x));
}

template <Gelu form, class Math = GeluMath, class C>
GODWIT_INLINE inline C gelu_value(C x) {
  const C a = gelu_size<form>(x);
  return choose(x < 0, C(0), x) - a * gelu_lower<form, Math>(a).tail;
}

template <Gelu form, class Math = GeluMath, class C>
GODWIT_INLINE inline C gelu_derivative(C x) {
  const C a = gelu_size<form>(x);
  const GeluLower<C> at = gelu_lower<form, Math>(a);
  const C below = at.tail - a * at.bend;
  return choose(x < 0, below, 1 - below);
}

}  // namespace godwit::detail
