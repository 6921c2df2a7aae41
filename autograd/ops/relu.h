// relu: y = max(x, 0) for a tensor of any shape; NaN stays NaN.
#pragma once
#include "autograd/var.h"

namespace godwit {

void relu_forward(Cpu, const Tensor& x, const Tensor& y);
// dx = dy where y > 0, else 0; a NaN in y lets dy through. dx may be dy itself.
void relu_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx);

namespace ops {

inline Var relu(const Var& x) {
  Tensor y(x.shape(), x.dtype());
  relu_forward(Cpu{}, x.value(), y);
  return Var::result(y, {x}, [dx = x.gradient(), y](const Tensor& dy) {
    const Tensor g = dy.shared() ? dx.target() : dy;
    relu_backward(Cpu{}, y, dy, g);
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
