// softmax over the last extent, of all elements or of those a mask leaves.
#pragma once
#include "autograd/var.h"

namespace godwit {

// y = exp(x) / Σ exp(x) of each row of x [n, c], where mask, when defined, is not 0; y = 0 elsewhere, and in rows
// without such an element. float32, bfloat16 or float64; sums in compute_t.
void softmax_forward(Cpu, const Tensor& x, const Tensor& mask, const Tensor& y);
void softmax_forward(Cuda, const Tensor& x, const Tensor& mask, const Tensor& y);
// dx = y · (dy - Σ y·dy) by rows; may be dy itself.
void softmax_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx);
void softmax_backward(Cuda, const Tensor& y, const Tensor& dy, const Tensor& dx);

namespace ops {

// x [n, c]; mask uint8 [n, c]: 0 leaves an element out. Throws on other shapes and types.
Var softmax(const Var& x, const Tensor& mask = {});

}  // namespace ops
}  // namespace godwit
