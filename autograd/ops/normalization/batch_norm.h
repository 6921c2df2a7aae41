// Batch normalisation over all extents but the last (channels), optionally with what follows it in a residual network
// fused in: y = gamma · (x - mean) / sqrt(variance + eps) + beta, then y + residual, then max(y, 0).
#pragma once
#include <functional>

#include "autograd/var.h"

namespace godwit {

struct BatchNormOptions {
  bool training = true;   // statistics of the batch, which also move the running ones; else the running ones
  double momentum = 0.1;  // running = (1 - momentum) · running + momentum · batch
  double eps = 1e-5;
  bool relu = false;
  // Set where the batch is that of several ranks: gives every rank's x, float64 [n], as [ranks, n] in rank order, on
  // the device of x.
  // Called once in a training forward and once in its backward, in the same order on all ranks.
  std::function<Tensor(const Tensor& x)> gather = {};
};

// What the kernels behind the statistics read: x [.., c]; mean to beta [c] of compute_t; y, the output, only where it
// tells what the relu let pass: behind a residual. Else that is found again from x, which costs no memory traffic.
struct BatchNormState {
  Tensor x, mean, inv_std, gamma, beta;
  bool relu = false;
  Tensor y;
};

// mean and biased variance, both float64 [c], of x [.., c].
void batch_norm_statistics(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance);
void batch_norm_statistics(Cuda, const Tensor& x, const Tensor& mean, const Tensor& variance);
// state.mean and state.inv_std from those; moves the running statistics, if defined, by a batch of so many rows, which
// all_rows [1], float64, says instead where it is defined.
void batch_norm_settle(Cpu, const Tensor& mean, const Tensor& variance, double rows, const Tensor& all_rows,
                       const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormState& state);
void batch_norm_settle(Cuda, const Tensor& mean, const Tensor& variance, double rows, const Tensor& all_rows,
                       const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormState& state);
// The residual is of x's shape and type, or undefined.
void batch_norm_forward(Cpu, const BatchNormState& state, const Tensor& residual, const Tensor& y);
void batch_norm_forward(Cuda, const BatchNormState& state, const Tensor& residual, const Tensor& y);
// d_beta = Σ g and d_gamma = Σ g · x̂, both [c] of compute_t, where g is dy behind the relu and x̂ the normalised x. With
// state.y defined, g is kept for the next kernel and the residual; it may be dy itself.
void batch_norm_backward_parameters(Cpu, const BatchNormState& state, const Tensor& dy, const Tensor& g,
                                    const Tensor& d_gamma, const Tensor& d_beta);
void batch_norm_backward_parameters(Cuda, const BatchNormState& state, const Tensor& dy, const Tensor& g,
                                    const Tensor& d_gamma, const Tensor& d_beta);
// dx = gamma / std · (g - d_beta / rows - x̂ · d_gamma / rows) when mean and std come from x (training), else
// gamma / std · g. With state.y defined, dy is that g. dx may be dy or x itself.
void batch_norm_backward_input(Cpu, const BatchNormState& state, const Tensor& dy, bool training, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& dx);
void batch_norm_backward_input(Cuda, const BatchNormState& state, const Tensor& dy, bool training,
                               const Tensor& d_gamma, const Tensor& d_beta, const Tensor& dx);

namespace ops {

// x [.., c] with gamma, beta, running_mean, running_var [c] of x's type, or float32 with bfloat16 x; a residual, where
// defined, like x. Training normalises by the biased variance and moves running_var by the unbiased one, as PyTorch
// does; it throws when there is one value per channel only. With options.gather, ranks (whose batches may differ in
// size) get the outputs and input gradients, of the sum of their losses, that one rank with all their rows would get;
// d_gamma and d_beta are sums over a rank's own rows, as for any parameter: the exchange takes their mean.
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options = {}, const Var& residual = Var());

}  // namespace ops
}  // namespace godwit
