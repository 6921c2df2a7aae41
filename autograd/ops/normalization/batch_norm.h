// Batch normalization over all extents except the last (channels): y = gamma · (x - mean) / sqrt(variance + eps) +
// beta. The operations that follow in a residual network, y + residual and max(y, 0), may be fused.
#pragma once
#include <functional>

#include "autograd/var.h"

namespace godwit {

struct BatchNormOptions {
  // true: use batch statistics and update the running statistics. false: use the running statistics.
  bool training = true;
  double momentum = 0.1;  // running = (1 - momentum) · running + momentum · batch
  double eps = 1e-5;      // added to the variance
  bool relu = false;      // max(y, 0) at the end
  // Set for batch norm over several ranks. Gathers x, float64 [n], of every rank as [ranks, n] in rank order on the
  // device of x. Called once in a training forward pass and once in its backward pass, in the same order on all ranks.
  std::function<Tensor(const Tensor& x)> gather = {};
};

// Inputs of the kernels that run after the statistics: x [.., c]; mean, inv_std, gamma and beta [c] of type compute_t.
// y is kept only if a residual was added: the ReLU mask is then recovered from y, otherwise from x, without additional
// memory traffic.
struct BatchNormState {
  Tensor x, mean, inv_std, gamma, beta;  // x and the parameters; inv_std = 1/sqrt(variance + eps)
  bool relu = false;                     // max(y, 0) at the end
  Tensor y;                              // the output, kept only with a residual
};

// Mean and biased variance of x [.., c], both float64 [c].
void batch_norm_statistics(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance);
void batch_norm_statistics(Cuda, const Tensor& x, const Tensor& mean, const Tensor& variance);
// Computes state.mean and state.inv_std from mean and variance. Updates the running statistics if they are defined. The
// batch has `rows` rows, or all_rows [1] (float64) if all_rows is defined.
void batch_norm_finalize(Cpu, const Tensor& mean, const Tensor& variance, double rows, const Tensor& all_rows,
                         const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormState& state);
void batch_norm_finalize(Cuda, const Tensor& mean, const Tensor& variance, double rows, const Tensor& all_rows,
                         const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormState& state);
// The residual has the shape and type of x, or is undefined.
void batch_norm_forward(Cpu, const BatchNormState& state, const Tensor& residual, const Tensor& y);
void batch_norm_forward(Cuda, const BatchNormState& state, const Tensor& residual, const Tensor& y);
// d_beta = Σ g and d_gamma = Σ g · x̂, both [c] of type compute_t. g is dy after the ReLU mask, and x̂ is the
// normalized x. If state.y is defined, g is stored for batch_norm_backward_input() and for the residual. g may be dy.
void batch_norm_backward_parameters(Cpu, const BatchNormState& state, const Tensor& dy, const Tensor& g,
                                    const Tensor& d_gamma, const Tensor& d_beta);
void batch_norm_backward_parameters(Cuda, const BatchNormState& state, const Tensor& dy, const Tensor& g,
                                    const Tensor& d_gamma, const Tensor& d_beta);
// dx = gamma / std · (g - d_beta / rows - x̂ · d_gamma / rows) in training, otherwise gamma / std · g. If state.y is
// defined, dy is the stored g. dx may be dy or x.
void batch_norm_backward_input(Cpu, const BatchNormState& state, const Tensor& dy, bool training, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& dx);
void batch_norm_backward_input(Cuda, const BatchNormState& state, const Tensor& dy, bool training,
                               const Tensor& d_gamma, const Tensor& d_beta, const Tensor& dx);

namespace ops {

// x is [.., c]. gamma, beta, running_mean and running_var [c] have the type of x, or float32 for bfloat16 x. A defined
// residual has the shape and type of x. As in PyTorch, training normalizes by the biased variance and updates
// running_var with the unbiased variance. Throws for other shapes or types, and in training if there is only one value
// per channel.
//
// With options.gather, the batch sizes of the ranks may differ. The outputs and input gradients are then those that one
// rank with all rows would compute for the sum of all losses. d_gamma and d_beta are sums over the rank's rows, like
// all parameter gradients; the exchange averages them.
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options = {}, const Var& residual = Var());

}  // namespace ops
}  // namespace godwit
