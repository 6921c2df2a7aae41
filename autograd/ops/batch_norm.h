// Batch normalisation over all extents but the last (channels), optionally with the relu behind it fused in:
//   y = gamma · (x - mean) / sqrt(variance + eps) + beta, then max(y, 0).
#pragma once
#include "autograd/var.h"

namespace godwit {

struct BatchNormOptions {
  bool training = true;   // statistics of the batch, which also move the running ones; else the running ones
  double momentum = 0.1;  // running = (1 - momentum) · running + momentum · batch
  double eps = 1e-5;
  bool relu = false;
};

// What the kernels behind the statistics read: x [.., c]; the rest [c] of compute_t. The relu's mask is not kept: it is
// found again from x, which costs no memory traffic.
struct BatchNormState {
  Tensor x, mean, inv_std, gamma, beta;
  bool relu = false;
};

// mean and biased variance, both float64 [c], of x [.., c].
void batch_norm_statistics(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance);
void batch_norm_forward(Cpu, const BatchNormState& state, const Tensor& y);
// d_beta = Σ g and d_gamma = Σ g · x̂, both [c] of compute_t, where g is dy behind the relu and x̂ the normalised x.
void batch_norm_backward_parameters(Cpu, const BatchNormState& state, const Tensor& dy, const Tensor& d_gamma,
                                    const Tensor& d_beta);
// dx = gamma / std · (g - d_beta / rows - x̂ · d_gamma / rows) when mean and std come from x (training), else
// gamma / std · g.
void batch_norm_backward_input(Cpu, const BatchNormState& state, const Tensor& dy, bool training, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& dx);

namespace ops {

// x [.., c] with gamma, beta, running_mean, running_var [c] of x's type, or float32 with bfloat16 x. Training
// normalises by the biased variance and moves running_var by the unbiased one, as PyTorch does; it throws when there is
// one value per channel only.
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options = {});

}  // namespace ops
}  // namespace godwit
