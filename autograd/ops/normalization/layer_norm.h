// Layer normalization over the last extent (Ba et al. 2016): y = gamma · (x - mean) / sqrt(variance + eps) + beta, with
// the mean and biased variance of each row. The preceding residual addition may be fused.
#pragma once
#include "autograd/var.h"

namespace godwit {

// x and y are [n, width]. gamma and beta [width], mean and inv_std [n], and all sums have type compute_t. If residual
// is defined, normalizes x + residual and writes this sum to `sum`, which may be x.
void layer_norm_forward(Cpu, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std);
void layer_norm_forward(Cuda, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std);
// x is the tensor that was normalized; with a residual, this is the sum. dx may be dy. d_gamma and d_beta [width] sum
// over rows in a fixed order.
void layer_norm_backward(Cpu, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta);
void layer_norm_backward(Cuda, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta);

namespace ops {

// x is [n, width]. gamma and beta [width] have the type of x, or float32 for bfloat16 x. Throws for other shapes or
// types, if gamma and beta are one variable, and if eps is negative or not finite.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double eps);

// layer_norm(x + residual) in one pass over memory. The sum, rounded to x's type, is kept for backward.
Var add_layer_norm(const Var& x, const Var& residual, const Var& gamma, const Var& beta, double eps);

}  // namespace ops
}  // namespace godwit
