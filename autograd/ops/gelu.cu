#include "autograd/ops/gelu_math.h"
#include "engine/cuda/approximate.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

// With relative errors below 2⁻¹⁵, for bfloat16.
struct ApproximateMath {
  static constexpr float kLog2E = 1.44269504f;
  GODWIT_INLINE static float half_normal(float a) { return exp2_approximate(a * a * (-0.5f * kLog2E) - 1); }
  GODWIT_INLINE static float exp(float x) { return exp2_approximate(x * kLog2E); }
  GODWIT_INLINE static float inverse(float x) { return reciprocal_approximate(x); }
};

template <class T>
using MathOf = std::conditional_t<std::is_same_v<T, bf16>, ApproximateMath, detail::GeluMath>;

template <Gelu form, class Math>
struct GeluValue {
  template <class C>
  __device__ C operator()(C x) const {
    return detail::gelu_value<form, Math>(x);
  }
};

template <Gelu form, class Math>
struct GeluGradient {
  template <class C>
  __device__ C operator()(C x, C dy) const {
    return dy * detail::gelu_derivative<form, Math>(x);
  }
};

template <Gelu form>
void forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    elementwise(device, "gelu", x.numel(), GeluValue<form, MathOf<T>>{}, y.cuda_data<T>(), x.cuda_data<T>());
  });
}

template <Gelu form>
void backward(Cuda device, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    elementwise(device, "gelu", x.numel(), GeluGradient<form, MathOf<T>>{}, dx.cuda_data<T>(), x.cuda_data<T>(),
                dy.cuda_data<T>());
  });
}

}  // namespace

void gelu_forward(Cuda device, const Tensor& x, Gelu form, const Tensor& y) {
  check_like(y, x, "gelu", "y");
  form == Gelu::erf ? forward<Gelu::erf>(device, x, y) : forward<Gelu::tanh>(device, x, y);
}

void gelu_backward(Cuda device, const Tensor& x, const Tensor& dy, Gelu form, const Tensor& dx) {
  check_like(dy, x, "gelu", "dy");
  check_like(dx, x, "gelu", "dx");
  form == Gelu::erf ? backward<Gelu::erf>(device, x, dy, dx) : backward<Gelu::tanh>(device, x, dy, dx);
}

}  // namespace godwit
