// scale: y = factor · x for a tensor of any shape.
#pragma once
#include "autograd/var.h"

namespace godwit {

void scale_forward(Cpu, const Tensor& x, double factor, const Tensor& y);  // y may be x
void scale_forward(Cuda, const Tensor& x, double factor, const Tensor& y);

namespace ops {

inline Var scale(const Var& x, double factor) {  // factor · x
  Tensor y(x.shape(), x.dtype(), x.device());
  on_device(y, [&](auto device) { scale_forward(device, x.value(), factor, y); });
  return Var::result(y, {x}, [dx = x.gradient(), factor](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    on_device(dy, [&](auto device) { scale_forward(device, dy, factor, g); });
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
