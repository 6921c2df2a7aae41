// scale: y = factor · x for a tensor of any shape.
#pragma once
#include "autograd/var.h"

namespace godwit {

void scale_forward(Cpu, const Tensor& x, double factor, const Tensor& y);  // y may be x itself

namespace ops {

inline Var scale(const Var& x, double factor) {
  Tensor y(x.shape(), x.dtype());
  scale_forward(Cpu{}, x.value(), factor, y);
  return Var::result(y, {x}, [dx = x.gradient(), factor](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    scale_forward(Cpu{}, dy, factor, g);
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
