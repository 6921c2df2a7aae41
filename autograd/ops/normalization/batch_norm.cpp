#include "autograd/ops/normalization/batch_norm.h"

#include <cmath>
#include <utility>

#include "autograd/ops/normalization/batch_norm_ranks.h"

namespace godwit::ops {
namespace {

void check_arguments(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean,
                     const Tensor& running_var, const BatchNormOptions& options, const Var& residual) {
  check(x.shape().rank() >= 2, "batch_norm: x must be [.., channels], got ", x.shape());
  const int64_t channels = x.dim(x.shape().rank() - 1);
  const DType expected = x.dtype() == DType::bf16 ? DType::f32 : x.dtype();
  for (const auto& [name, tensor] : {std::pair{"gamma", gamma.value()},
                                     {"beta", beta.value()},
                                     {"running_mean", running_mean},
                                     {"running_var", running_var}})
    check(tensor.defined() && tensor.shape() == Shape{channels} && tensor.dtype() == expected, "batch_norm: ", name,
          " is ", tensor.dtype(), " ", tensor.shape(), ", x is ", x.dtype(), " ", x.shape());
  if (residual.defined()) check_like(residual.value(), x.value(), "batch_norm", "residual");
  check(!(gamma == beta), "batch_norm: gamma and beta must be two variables");
  check(options.eps >= 0 && std::isfinite(options.eps), "batch_norm: eps must be finite and not negative, got ",
        options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, "batch_norm: momentum must be in [0, 1], got ",
        options.momentum);
}

// Replaces mean and variance of this rank's batch by those of all ranks. Returns the total rows [1] on the same device.
Tensor combine_statistics(double own, const BatchNormOptions& options, const Tensor& mean, const Tensor& variance) {
  const Tensor message({1 + 2 * mean.numel()}, DType::f64, mean.device()), rows({1}, DType::f64, mean.device());
  on_device(mean, [&](auto device) { batch_norm_pack_statistics(device, own, mean, variance, message); });
  const Tensor all = options.gather(message);
  on_device(mean, [&](auto device) { batch_norm_combine_statistics(device, all, rows, mean, variance); });
  return rows;
}

// State captured for backward.
struct Backward {
  BatchNormState state;
  bool training;
  std::function<Tensor(const Tensor&)> gather;
  double own_rows;
  Tensor rows;  // total rows of all ranks, if `gather` is set
  Gradient dx, d_gamma, d_beta, d_residual;

  void operator()(const Tensor& dy) const {
    const bool ours = !dy.shared();  // dy has no other reader, so gradients may overwrite it
    const Tensor g = !state.y.defined() || ours ? dy : Tensor(dy.shape(), dy.dtype(), dy.device());
    const auto target = [&](const Gradient& gradient) {
      return gradient ? gradient.target() : Tensor(state.gamma.shape(), state.gamma.dtype(), dy.device());
    };
    const Tensor g_gamma = target(d_gamma), g_beta = target(d_beta);
    if (training || d_gamma || d_beta || state.y.defined())
      on_device(dy, [&](auto device) { batch_norm_backward_parameters(device, state, dy, g, g_gamma, g_beta); });
    if (d_residual) d_residual.add(g);
    // The kernel divides by this rank's rows, so the sums over all ranks are scaled by this rank's share.
    const auto [all_gamma, all_beta] = gather ? all_sums(g_gamma, g_beta) : std::pair(g_gamma, g_beta);
    if (dx) {
      const Tensor to = ours && !d_residual ? g
                        : state.x.shared()  ? dx.target()
                                            : state.x;  // last use of x
      on_device(dy, [&, sums = std::pair(all_gamma, all_beta)](auto device) {
        batch_norm_backward_input(device, state, g, training, sums.first, sums.second, to);
      });
      dx.add(to);
    }
    if (d_gamma) d_gamma.add(g_gamma);
    if (d_beta) d_beta.add(g_beta);
  }

  // The sums over all ranks, times this rank's share of the rows.
  std::pair<Tensor, Tensor> all_sums(const Tensor& g_gamma, const Tensor& g_beta) const {
    const int64_t channels = g_gamma.numel();
    const Tensor message({2 * channels}, DType::f64, g_gamma.device());
    const Tensor sums({2 * channels}, g_gamma.dtype(), g_gamma.device());
    on_device(sums, [&](auto device) { batch_norm_pack_sums(device, g_gamma, g_beta, message); });
    const Tensor all = gather(message);
    on_device(sums, [&](auto device) { batch_norm_combine_sums(device, all, own_rows, rows, sums); });
    return {sums.range(0, channels), sums.range(channels, channels)};
  }
};

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options, const Var& residual) {
  check_arguments(x, gamma, beta, running_mean, running_var, options, residual);
  const Device where = x.device();
  const DType dtype = gamma.dtype();
  BatchNormState state{x.value(),
                       Tensor(gamma.shape(), dtype, where),
                       Tensor(gamma.shape(), dtype, where),
                       gamma.value(),
                       beta.value(),
                       options.relu,
                       Tensor()};
  double own = 0;
  Tensor all_rows;
  if (options.training) {
    own = static_cast<double>(gamma.value().numel() ? x.value().numel() / gamma.value().numel() : 0);
    const Tensor mean(gamma.shape(), DType::f64, where), variance(gamma.shape(), DType::f64, where);
    on_device(mean, [&](auto device) { batch_norm_statistics(device, x.value(), mean, variance); });
    if (options.gather) all_rows = combine_statistics(own, options, mean, variance);
    // The host waits for the total rows only if this rank has too few.
    check(own > 1 || (all_rows.defined() && all_rows.item() > 1),
          "batch_norm: training needs more than one value per channel, x is ", x.shape(),
          "; use a larger batch or larger images");
    on_device(mean, [&](auto device) {
      batch_norm_finalize(device, mean, variance, own, all_rows, options, running_mean, running_var, state);
    });
  } else {
    on_device(x.value(), [&](auto device) {
      batch_norm_finalize(device, running_mean.to(DType::f64), running_var.to(DType::f64), 0, Tensor(), options,
                          Tensor(), Tensor(), state);
    });
  }
  Tensor y(x.shape(), x.dtype(), where);
  on_device(y, [&](auto device) {
    batch_norm_forward(device, state, residual.defined() ? residual.value() : Tensor(), y);
  });
  if (residual.defined() && options.relu) state.y = y;
  return Var::result(y, {x, gamma, beta, residual},
                     Backward{state, options.training, options.training ? options.gather : nullptr, own, all_rows,
                              x.gradient(), gamma.gradient(), beta.gradient(), residual.gradient()});
}

}  // namespace godwit::ops
