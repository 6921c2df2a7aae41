// tanh: y = tanh(x) for a tensor of any shape.
#pragma once
#include "autograd/var.h"

namespace godwit {

void tanh_forward(Cpu, const Tensor& x, const Tensor& y);
void tanh_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx);  // dx = dy · (1 - y²), may be dy itself

namespace ops {

inline Var tanh(const Var& x) {
  Tensor y(x.shape(), x.dtype());
  tanh_forward(Cpu{}, x.value(), y);
  return Var::result(y, {x}, [dx = x.gradient(), y](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    tanh_backward(Cpu{}, y, dy, g);
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
