// linear: y [n, out] = x [n, in] · w [out, in]ᵀ + bias [out].
#pragma once
#include "autograd/var.h"

namespace godwit {

// x, y and their gradients are float32, bfloat16 or float64. w, bias and their gradients have the same type, or float32
// for bfloat16 x. An undefined bias or db is ignored.
void linear_forward(Cpu, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
void linear_forward(Cuda, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
// dx = dy · w, or dx + dy · w if `add`.
void linear_backward_data(Cpu, const Tensor& dy, const Tensor& w, const Tensor& dx, bool add = false);
void linear_backward_data(Cuda, const Tensor& dy, const Tensor& w, const Tensor& dx, bool add = false);
// dw = dyᵀ · x, db = column sums of dy.
void linear_backward_weights(Cpu, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& db);
void linear_backward_weights(Cuda, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& db);

namespace ops {

Var linear(const Var& x, const Var& w, const Var& bias = Var());  // undefined bias: no bias

}  // namespace ops
}  // namespace godwit
