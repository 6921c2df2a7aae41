// add: y = a + b. add_relu: y = max(a + b, 0), for residual blocks. Both take tensors of equal shape.
#pragma once
#include "autograd/ops/relu.h"

namespace godwit {

void add_forward(Cpu, const Tensor& a, const Tensor& b, const Tensor& y);  // y = a + b
void add_forward(Cuda, const Tensor& a, const Tensor& b, const Tensor& y);
void add_relu_forward(Cpu, const Tensor& a, const Tensor& b, const Tensor& y);  // y = max(a + b, 0)
void add_relu_forward(Cuda, const Tensor& a, const Tensor& b, const Tensor& y);

// Differentiable operations on Vars.
namespace ops {

// a + b. Throws unless a and b have equal shape, type and device.
inline Var add(const Var& a, const Var& b) {
  check_like(b.value(), a.value(), "add", "b");
  Tensor y(a.shape(), a.dtype(), a.device());
  on_device(y, [&](auto device) { add_forward(device, a.value(), b.value(), y); });
  return Var::result(y, {a, b}, [da = a.gradient(), db = b.gradient()](const Tensor& dy) {
    if (da) da.add(dy);
    if (db) db.add(dy);
  });
}

// max(a + b, 0). Throws like add(). Both inputs share one gradient tensor.
inline Var add_relu(const Var& a, const Var& b) {
  check_like(b.value(), a.value(), "add_relu", "b");
  Tensor y(a.shape(), a.dtype(), a.device());
  on_device(y, [&](auto device) { add_relu_forward(device, a.value(), b.value(), y); });
  return Var::result(y, {a, b}, [da = a.gradient(), db = b.gradient(), y](const Tensor& dy) {
    const Tensor g = dy.shared() ? Tensor(y.shape(), y.dtype(), y.device()) : dy;
    on_device(y, [&](auto device) { relu_backward(device, y, dy, g); });
    if (da) da.add(g);
    if (db) db.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
