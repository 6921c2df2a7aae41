// Root-mean-square normalization over the last extent (Zhang and Sennrich 2019): y = gamma · x / sqrt(mean(x²) + eps).
#pragma once
#include "autograd/var.h"

namespace godwit {

// x and y are [n, width]. gamma [width], inv_rms [n] and all sums have type compute_t.
void rms_norm_forward(Cpu, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& inv_rms);
void rms_norm_forward(Cuda, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& inv_rms);
// dx may be dy. d_gamma [width] sums over rows in a fixed order.
void rms_norm_backward(Cpu, const Tensor& x, const Tensor& gamma, const Tensor& inv_rms, const Tensor& dy,
                       const Tensor& dx, const Tensor& d_gamma);
void rms_norm_backward(Cuda, const Tensor& x, const Tensor& gamma, const Tensor& inv_rms, const Tensor& dy,
                       const Tensor& dx, const Tensor& d_gamma);

namespace ops {

// x is [n, width]. gamma [width] has the type of x, or float32 for bfloat16 x. Throws for other shapes or types, and if
// eps is negative or not finite.
Var rms_norm(const Var& x, const Var& gamma, double eps);

}  // namespace ops
}  // namespace godwit
