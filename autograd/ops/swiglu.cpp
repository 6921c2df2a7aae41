#include "autograd/ops/swiglu.h"

#include "autograd/ops/swiglu_math.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kSwigluGrain = 1 << 14;  // minimum elements per thread

}  // namespace

void swiglu_forward(Cpu, const Tensor& gate, const Tensor& up, const Tensor& y) {
  dispatch_float(gate.dtype(), "swiglu", [&]<class T>() {
    using C = compute_t<T>;
    const T *g = gate.data<T>(), *u = up.data<T>();
    T* to = y.data<T>();
    compute_for(gate.numel(), kSwigluGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(detail::swiglu_value(C(g[i]), C(u[i])));
    });
  });
}

void swiglu_backward(Cpu, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& d_gate,
                     const Tensor& d_up) {
  dispatch_float(gate.dtype(), "swiglu", [&]<class T>() {
    using C = compute_t<T>;
    const T *g = gate.data<T>(), *u = up.data<T>(), *from = dy.data<T>();
    T *to_gate = d_gate.data<T>(), *to_up = d_up.data<T>();
    compute_for(gate.numel(), kSwigluGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) {
        const C d = C(from[i]);
        to_gate[i] = static_cast<T>(detail::swiglu_of_gate(C(g[i]), C(u[i]), d));
        to_up[i] = static_cast<T>(detail::swiglu_value(C(g[i]), d));
      }
    });
  });
}

Var ops::swiglu(const Var& gate, const Var& up) {
  check_like(up.value(), gate.value(), "swiglu", "up");
  const Tensor y(gate.shape(), gate.dtype(), gate.device());
  on_device(y, [&](auto device) { swiglu_forward(device, gate.value(), up.value(), y); });
  return Var::result(
      y, {gate, up},
      [g = gate.value(), u = up.value(), d_gate = gate.gradient(), d_up = up.gradient()](const Tensor& dy) {
        const auto fresh = [&] { return Tensor(g.shape(), g.dtype(), g.device()); };
        const Tensor of_gate = fresh(), of_up = dy.shared() ? fresh() : dy;
        on_device(g, [&](auto device) { swiglu_backward(device, g, u, dy, of_gate, of_up); });
        if (d_gate) d_gate.add(of_gate);
        if (d_up) d_up.add(of_up);
      });
}

}  // namespace godwit
