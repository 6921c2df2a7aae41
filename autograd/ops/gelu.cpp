#include "autograd/ops/gelu.h"

#include "autograd/ops/gelu_math.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kGeluGrain = 1 << 14;  // minimum elements per thread

template <Gelu form>
void forward(const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    compute_for(x.numel(), kGeluGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(detail::gelu_value<form>(compute_t<T>(from[i])));
    });
  });
}

template <Gelu form>
void backward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    compute_for(x.numel(), kGeluGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i)
        to[i] = static_cast<T>(C(from[i]) * detail::gelu_derivative<form>(C(in[i])));
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
  Tensor y(x.shape(), x.dtype(), x.device());
  on_device(y, [&](auto device) { gelu_forward(device, x.value(), form, y); });
  return Var::result(y, {x}, [dx = x.gradient(), xv = x.value(), form](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    on_device(xv, [&](auto device) { gelu_backward(device, xv, dy, form, g); });
    dx.add(g);
  });
}

}  // namespace godwit
