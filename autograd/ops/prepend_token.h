// prepend_token: y = [token; x] + positions for every sequence of a batch, the input of a vision transformer.
#pragma once
#include "autograd/var.h"

namespace godwit {

// x is [n, length, width], y [n, length + 1, width]; token [width] and positions [length + 1, width] have type
// compute_t. y(n, 0) = token + positions(0); y(n, 1 + i) = x(n, i) + positions(1 + i).
void prepend_token_forward(Cpu, const Tensor& x, const Tensor& token, const Tensor& positions, const Tensor& y);
void prepend_token_forward(Cuda, const Tensor& x, const Tensor& token, const Tensor& positions, const Tensor& y);
void prepend_token_backward(Cpu, const Tensor& dy, const Tensor& dx);  // dx(n, i) = dy(n, 1 + i)
void prepend_token_backward(Cuda, const Tensor& dy, const Tensor& dx);

namespace ops {

// token and positions may have leading extents of 1. The gradients of token and positions sum over the batch in
// float64, in order. Throws for other shapes or types.
Var prepend_token(const Var& x, const Var& token, const Var& positions);

}  // namespace ops
}  // namespace godwit
