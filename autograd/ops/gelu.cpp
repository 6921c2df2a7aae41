#include "autograd/ops/gelu.h"

#include <algorithm>
#include <numbers>

#include "engine/vector_math.h"

namespace godwit {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

// What one form of gelu is made of, a = |x|: gelu(-a) = -a · tail and gelu(a) = a - a · tail; its derivative at -a is
// tail - a · bend, at a 1 minus that. So both signs keep their relative accuracy.
template <class C>
struct Lower {
  C tail, bend;
};

// Φ(-a) and φ(a) for a in [0, 13.2], where Φ(-a) = e^(-a²/2) · Q(a). a² / 2 is cut into what 12 bits square exactly,
// and the rest.
GODWIT_INLINE inline Lower<float> lower_erf(float a) {
  const float top = std::bit_cast<float>(std::bit_cast<uint32_t>(a) & 0xFFFFF000u);
  const float half = half_exp(-0.5f * (top * top), -0.5f * ((a - top) * (a + top)));
  // 2 Q(a) = P(u) / (a + 3) with u = (a - 3) / (a + 3), fitted on [0, 13.2] to 4e-8 of its value
  const float q = 1 / (a + 3), u = (a - 3) * q, u2 = u * u, u4 = u2 * u2;
  const float p0 = (1.4581673f + -1.0186645f * u) + u2 * (0.46003848f + -0.09451476f * u);
  const float p4 = (-0.02095888f + 0.013860606f * u) + u2 * (0.002155302f + -0.001825264f * u);
  return {half * ((p0 + u4 * (p4 + u4 * -0.00054598786f)) * q), half * 0.79788456f};
}

GODWIT_INLINE inline Lower<double> lower_erf(double a) {
  return {0.5 * std::erfc(a / std::numbers::sqrt2), std::exp(-0.5 * a * a) / std::sqrt(2 * std::numbers::pi)};
}

// σ(-2u(a)) and its derivative for 2u = 2 √(2/π) · (a + 0.044715 a³), which stays below 88.
template <class C>
GODWIT_INLINE inline Lower<C> lower_tanh(C a) {
  constexpr C kFactor = C(2 * 0.79788456080286535588), kCubic = C(0.044715);
  const C square = a * a, e = exp_below(kFactor * a * (1 + kCubic * square)), tail = 1 / (1 + e);
  return {tail, e * tail * tail * (kFactor * (1 + 3 * kCubic * square))};
}

template <Gelu form, class C>
GODWIT_INLINE inline Lower<C> lower(C a) {
  if constexpr (form == Gelu::erf) return lower_erf(a);
  else return lower_tanh(a);
}

// |x|, but not above where gelu has become 0 or x; NaN stays NaN.
template <Gelu form>
GODWIT_INLINE inline float size_of(float x) {
  constexpr float kFar = form == Gelu::erf ? 13.2f : 10;
  const float size = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu);
  return choose(size > kFar, kFar, size);
}
template <Gelu form>
GODWIT_INLINE inline double size_of(double x) {
  constexpr double kFar = form == Gelu::erf ? 40 : 20;
  return choose(std::abs(x) > kFar, kFar, std::abs(x));
}

template <Gelu form, class C>
GODWIT_INLINE inline C value_of(C x) {
  const C a = size_of<form>(x);
  return choose(x < 0, C(0), x) - a * lower<form>(a).tail;
}

template <Gelu form, class C>
GODWIT_INLINE inline C slope_of(C x) {
  const C a = size_of<form>(x);
  const Lower<C> at = lower<form>(a);
  const C below = at.tail - a * at.bend;
  return choose(x < 0, below, 1 - below);
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
