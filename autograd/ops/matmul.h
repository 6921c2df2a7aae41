// matmul: c = op(a) · op(b), for matrices or batches of matrices.
#pragma once
#include "autograd/var.h"

namespace godwit {

// c [m, n] = op(a) [m, k] · op(b) [k, n], or a batch of such products over an additional first extent. op transposes if
// its flag is set. Types: float32, bfloat16 (products in float32, result rounded once) or float64.
void matmul(Cpu, bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c);
void matmul(Cuda, bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c);

namespace ops {

// a is [m, k] ([k, m] if trans_a), b is [k, n] ([n, k] if trans_b), and the result is [m, n]. All three may have an
// additional first extent, which must be equal. Throws for other shapes or types.
Var matmul(const Var& a, const Var& b, bool trans_a = false, bool trans_b = false);

}  // namespace ops
}  // namespace godwit
