#include "autograd/ops/gelu.h"

#include <algorithm>
#include <numbers>

#include "engine/vector_math.h"

namespace godwit {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

// Φ(x) and φ(x), the normal distribution function and density.
template <class C>
struct Normal {
  C below, density;
};

// For |x| ≤ 15. Beyond 0 the tail Φ(-a) = e^(-a²/2) · Q(a) is small, and taken from 1; so both signs keep their
// relative accuracy. a² / 2 is halved into what 12 bits square exactly, and the rest.
GODWIT_INLINE inline Normal<float> normal(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float a = std::bit_cast<float>(bits & 0x7FFFFFFFu), top = std::bit_cast<float>(bits & 0x7FFFF000u);
  const float e = exp_of(-0.5f * (top * top), -0.5f * ((a - top) * (a + top)));
  // Q(a) = P(u) / (a + 2.5) with u = (a - 2.5) / (a + 2.5), fitted on [0, 14] to 1.5e-8 of its value
  const float q = 1 / (a + 2.5f), u = (a - 2.5f) * q;
  float p = -0.00015673174f;
  p = p * u + -0.0003099238f;
  p = p * u + 0.00068428245f;
  p = p * u + 0.0025225244f;
  p = p * u + -0.0016011316f;
  p = p * u + -0.016385825f;
  p = p * u + 0.009235963f;
  p = p * u + 0.13198695f;
  p = p * u + -0.433692f;
  p = p * u + 0.70665663f;
  const float tail = e * (p * q);
  return {x < 0 ? tail : 1 - tail, e * 0.39894228f};
}

GODWIT_INLINE inline Normal<double> normal(double x) {
  return {0.5 * std::erfc(-x / std::numbers::sqrt2), std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi)};
}

// Where gelu has become 0 or x, its derivative 0 or 1; farther out exponentials would overflow.
template <Gelu form, class C>
constexpr C kFar = form == Gelu::erf ? (sizeof(C) == 4 ? 15 : 40) : (sizeof(C) == 4 ? 10 : 20);
template <class C>
GODWIT_INLINE inline C at_least(C x, C bound) {
  return x < bound ? bound : x;  // NaN stays NaN
}
template <Gelu form, class C>
GODWIT_INLINE inline C bounded(C x) {
  const C above = at_least(x, -kFar<form, C>);
  return above > kFar<form, C> ? kFar<form, C> : above;
}

// The tanh form's (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), 2u = factor · x · (1 + 0.044715 x²)
template <class C>
constexpr C kFactor = C(2 * 0.79788456080286535588);  // 2 √(2/π)
template <class C>
constexpr C kCubic = C(0.044715);

template <Gelu form, class C>
GODWIT_INLINE inline C value_of(C x) {
  const C near = bounded<form>(x), from_below = at_least(x, -kFar<form, C>);
  if constexpr (form == Gelu::erf) return from_below * normal(near).below;
  return from_below / (1 + exp_of(-kFactor<C> * near * (1 + kCubic<C> * (near * near))));
}

template <Gelu form, class C>
GODWIT_INLINE inline C slope_of(C x) {
  const C near = bounded<form>(x), square = near * near;
  if constexpr (form == Gelu::erf) {
    const Normal<C> n = normal(near);
    return n.below + near * n.density;
  }
  const C e = exp_of(-kFactor<C> * near * (1 + kCubic<C> * square)), s = 1 / (1 + e);
  return s + near * (s * (e * s)) * (kFactor<C> * (1 + 3 * kCubic<C> * square));
}

template <Gelu form>
void forward(const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    vector_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(value_of<form>(compute_t<T>(from[i])));
    });
  });
}

template <Gelu form>
void backward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    vector_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(C(from[i]) * slope_of<form>(C(in[i])));
    });
  });
}

}  // namespace

void gelu_forward(Cpu, const Tensor& x, Gelu form, const Tensor& y) {
  check_like(y, x, "gelu", "y");
  form == Gelu::erf ? forward<Gelu::erf>(x, y) : forward<Gelu::tanh>(x, y);
}

void gelu_backward(Cpu, const Tensor& x, const Tensor& dy, Gelu form, const Tensor& dx) {
  check_like(dy, x, "gelu", "dy");
  check_like(dx, x, "gelu", "dx");
  form == Gelu::erf ? backward<Gelu::erf>(x, dy, dx) : backward<Gelu::tanh>(x, dy, dx);
}

Var ops::gelu(const Var& x, bool tanh) {
  const Gelu form = tanh ? Gelu::tanh : Gelu::erf;
  Tensor y(x.shape(), x.dtype());
  gelu_forward(Cpu{}, x.value(), form, y);
  return Var::result(y, {x}, [dx = x.gradient(), xv = x.value(), form](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    gelu_backward(Cpu{}, xv, dy, form, g);
    dx.add(g);
  });
}

}  // namespace godwit
