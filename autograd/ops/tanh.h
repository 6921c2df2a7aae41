// tanh: y = tanh(x) for a tensor of any shape.
#pragma once
#include "autograd/var.h"

namespace godwit {

void tanh_forward(Cpu, const Tensor& x, const Tensor& y);  // y = tanh(x)
void tanh_forward(Cuda, const Tensor& x, const Tensor& y);
void tanh_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx);  // dx = dy · (1 - y²); dx may be dy
void tanh_backward(Cuda, const Tensor& y, const Tensor& dy, const Tensor& dx);

namespace ops {

inline Var tanh(const Var& x) {  // tanh(x)
  Tensor y(x.shape(), x.dtype(), x.device());
  on_device(y, [&](auto device) { tanh_forward(device, x.value(), y); });
  return Var::result(y, {x}, [dx = x.gradient(), y](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    on_device(y, [&](auto device) { tanh_backward(device, y, dy, g); });
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
