// relu: y = max(x, 0) for a tensor of any shape; NaN stays NaN.
#pragma once
#include "autograd/var.h"

namespace godwit {

void relu_forward(Cpu, const Tensor& x, const Tensor& y);  // y = max(x, 0); NaN stays NaN
void relu_forward(Cuda, const Tensor& x, const Tensor& y);
// dx = dy where y > 0 or y is NaN, otherwise 0. dx may be dy.
void relu_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx);
void relu_backward(Cuda, const Tensor& y, const Tensor& dy, const Tensor& dx);

namespace ops {

inline Var relu(const Var& x) {  // max(x, 0)
  Tensor y(x.shape(), x.dtype(), x.device());
  on_device(y, [&](auto device) { relu_forward(device, x.value(), y); });
  return Var::result(y, {x}, [dx = x.gradient(), y](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    on_device(y, [&](auto device) { relu_backward(device, y, dy, g); });
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
