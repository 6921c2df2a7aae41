// softmax over the last extent, with an optional mask.
#pragma once
#include "autograd/var.h"

namespace godwit {

// y = exp(x) / Σ exp(x) over the unmasked elements of each row of x [n, c]. y = 0 for masked elements, whose entry in a
// defined mask is 0. Types: float32, bfloat16 or float64. Sums are in compute_t.
void softmax_forward(Cpu, const Tensor& x, const Tensor& mask, const Tensor& y);
void softmax_forward(Cuda, const Tensor& x, const Tensor& mask, const Tensor& y);
// dx = y · (dy - Σ y·dy) per row. dx may be dy.
void softmax_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx);
void softmax_backward(Cuda, const Tensor& y, const Tensor& dy, const Tensor& dx);

namespace ops {

// x is [n, c], mask uint8 [n, c]. 0 masks an element. Throws for other shapes or types.
Var softmax(const Var& x, const Tensor& mask = {});

}  // namespace ops
}  // namespace godwit
