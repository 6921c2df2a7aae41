// transpose: swaps the last two extents: y [n, b, a] of x [n, a, b].
#pragma once
#include "autograd/var.h"

namespace godwit {

void transpose_forward(Cpu, const Tensor& x, const Tensor& y);  // y(n, j, i) = x(n, i, j); also computes dx from dy
void transpose_forward(Cuda, const Tensor& x, const Tensor& y);

namespace ops {

Var transpose(const Var& x);  // [n, a, b] -> [n, b, a]; throws unless x has rank 3

}  // namespace ops
}  // namespace godwit
