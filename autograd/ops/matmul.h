// matmul: c = op(a) · op(b) of matrices, or of as many pairs of matrices.
#pragma once
#include "autograd/var.h"

namespace godwit {

// c [m, n] = op(a) [m, k] · op(b) [k, n], or the same of each of the first extent's entries; float32, bfloat16 (through
// float32 products, rounded at the end) or float64. op transposes when its flag is set.
void matmul(Cpu, bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c);
void matmul(Cuda, bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c);

namespace ops {

// a [m, k] ([k, m] when trans_a) and b [k, n] ([n, k] when trans_b) → [m, n], or the same with one more first extent,
// equal in both. Throws on other shapes and types.
Var matmul(const Var& a, const Var& b, bool trans_a = false, bool trans_b = false);

}  // namespace ops
}  // namespace godwit
