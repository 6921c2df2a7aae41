// Layer normalisation over the last extent (Ba et al. 2016): y = gamma · (x - mean) / sqrt(variance + eps) + beta, with
// mean and biased variance of each row; alone, or of the sum of a layer's output and what it was given.
#pragma once
#include "autograd/var.h"

namespace godwit {

// x and y are [n, width]; gamma, beta [width], mean and inv_std [n] are of compute_t, as are all sums. With a residual
// (undefined: none) x + residual is normalised, and written to sum, which may be x.
void layer_norm_forward(Cpu, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std);
void layer_norm_forward(Cuda, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std);
// x is what was normalised. dx may be dy itself; d_gamma and d_beta [width] are summed over the rows in a fixed order.
void layer_norm_backward(Cpu, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta);
void layer_norm_backward(Cuda, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta);

namespace ops {

// x [n, width] with gamma and beta [width] of x's type, or float32 beside bfloat16 x.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double eps);

// layer_norm(x + residual) in one pass over memory; the sum, rounded to x's type, is kept for backward.
Var add_layer_norm(const Var& x, const Var& residual, const Var& gamma, const Var& beta, double eps);

}  // namespace ops
}  // namespace godwit
