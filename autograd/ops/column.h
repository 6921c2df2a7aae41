// column: one column of a matrix: y [n] = column i of x [n, c]. For example, selects the start scores of question
// answering.
#pragma once
#include "autograd/var.h"

namespace godwit {

void column_forward(Cpu, const Tensor& x, int64_t i, const Tensor& y);  // y [n] = column i of x [n, c]
void column_forward(Cuda, const Tensor& x, int64_t i, const Tensor& y);
void column_backward(Cpu, const Tensor& dy, int64_t i, const Tensor& dx);  // adds dy to column i of dx
void column_backward(Cuda, const Tensor& dy, int64_t i, const Tensor& dx);

namespace ops {

// Column i of x [n, c], as [n]. Throws if x has no such column.
inline Var column(const Var& x, int64_t i) {
  check(x.shape().rank() == 2, "column: x must be [n, columns], got ", x.shape());
  check(i >= 0 && i < x.dim(1), "column: there is no column ", i, ", x is ", x.shape());
  Tensor y({x.dim(0)}, x.dtype(), x.device());
  on_device(y, [&](auto device) { column_forward(device, x.value(), i, y); });
  return Var::result(y, {x}, [dx = x.gradient(), i](const Tensor& dy) {
    const Tensor g = dx.sum();
    on_device(g, [&](auto device) { column_backward(device, dy, i, g); });
  });
}

}  // namespace ops
}  // namespace godwit
