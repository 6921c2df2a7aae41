#include "autograd/ops/batch_norm.h"

#include <cmath>
#include <utility>

namespace godwit::ops {
namespace {

void check_arguments(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean,
                     const Tensor& running_var, const BatchNormOptions& options, const Var& residual) {
  check(x.shape().rank() >= 2, "batch_norm: x must be [.., channels], it is ", x.shape());
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
  check(options.eps >= 0 && std::isfinite(options.eps), "batch_norm: eps must be finite and not negative, it is ",
        options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, "batch_norm: momentum must be in [0, 1], it is ",
        options.momentum);
}

// Rows, mean and variance of this rank's batch become those of all ranks' together: the same bits on all ranks.
double combine_statistics(double rows, const BatchNormOptions& options, const Tensor& mean, const Tensor& variance) {
  const int64_t channels = mean.numel(), width = 1 + 2 * channels;  // rows, means, Σ (x - mean)²
  const Tensor means = mean.to(kCpu), variances = variance.to(kCpu), own({width}, DType::f64, kCpu);
  double *o = own.data<double>(), *m = means.data<double>(), *v = variances.data<double>();
  o[0] = rows;
  for (int64_t c = 0; c < channels; ++c) {
    o[1 + c] = rows > 0 ? m[c] : 0;
    o[1 + channels + c] = rows > 0 ? rows * v[c] : 0;
  }
  const Tensor all = options.gather(own.to(mean.device())).to(kCpu);
  const double *first = all.data<double>(), *end = first + all.numel();
  double total = 0;
  for (const double* rank = first; rank < end; rank += width) total += rank[0];
  means.zero();
  variances.zero();
  for (const double* rank = first; rank < end; rank += width)
    for (int64_t c = 0; c < channels; ++c) m[c] += rank[0] / total * rank[1 + c];
  for (const double* rank = first; rank < end; rank += width)
    for (int64_t c = 0; c < channels; ++c) {
      const double apart = rank[1 + c] - m[c];
      v[c] += (rank[1 + channels + c] + rank[0] * apart * apart) / total;
    }
  mean.copy_from(means);
  variance.copy_from(variances);
  return total;
}

// What backward captures.
struct Backward {
  BatchNormState state;
  bool training;
  std::function<Tensor(const Tensor&)> gather;
  double share;  // of all ranks' rows
  Gradient dx, d_gamma, d_beta, d_residual;

  void operator()(const Tensor& dy) const {
    const bool ours = !dy.shared();  // nobody else reads it: gradients may be written over it
    const Tensor g = !state.y.defined() || ours ? dy : Tensor(dy.shape(), dy.dtype(), dy.device());
    const auto target = [&](const Gradient& gradient) {
      return gradient ? gradient.target() : Tensor(state.gamma.shape(), state.gamma.dtype(), dy.device());
    };
    const Tensor g_gamma = target(d_gamma), g_beta = target(d_beta);
    if (training || d_gamma || d_beta || state.y.defined())
      on_device(dy, [&](auto device) { batch_norm_backward_parameters(device, state, dy, g, g_gamma, g_beta); });
    if (d_residual) d_residual.add(g);
    // The kernel divides by this rank's rows.
    const auto [all_gamma, all_beta] = gather ? all_sums(g_gamma, g_beta) : std::pair(g_gamma, g_beta);
    if (dx) {
      const Tensor to = ours && !d_residual ? g
                        : state.x.shared()  ? dx.target()
                                            : state.x;  // x is read for the last time
      on_device(dy, [&, sums = std::pair(all_gamma, all_beta)](auto device) {
        batch_norm_backward_input(device, state, g, training, sums.first, sums.second, to);
      });
      dx.add(to);
    }
    if (d_gamma) d_gamma.add(g_gamma);
    if (d_beta) d_beta.add(g_beta);
  }

  // The sums over all ranks' rows, in rank order, times this rank's share of the rows.
  std::pair<Tensor, Tensor> all_sums(const Tensor& g_gamma, const Tensor& g_beta) const {
    const int64_t channels = g_gamma.numel();
    const Tensor own({2 * channels}, DType::f64, kCpu), sums({2 * channels}, DType::f64, kCpu);
    const Tensor of_gamma = g_gamma.to(kCpu), of_beta = g_beta.to(kCpu);
    for (int64_t c = 0; c < channels; ++c) {
      own.data<double>()[c] = of_gamma.item(c);
      own.data<double>()[channels + c] = of_beta.item(c);
    }
    const Tensor all = gather(own.to(g_gamma.device())).to(kCpu);
    sums.zero();
    for (int64_t i = 0; i < all.numel(); ++i) sums.data<double>()[i % (2 * channels)] += share * all.item(i);
    const auto part = [&](int64_t begin) {
      return sums.range(begin, channels).to(g_gamma.dtype()).to(g_gamma.device());
    };
    return {part(0), part(channels)};
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
  double share = 1;
  if (options.training) {
    const auto own = static_cast<double>(gamma.value().numel() ? x.value().numel() / gamma.value().numel() : 0);
    double rows = own;
    const Tensor mean(gamma.shape(), DType::f64, where), variance(gamma.shape(), DType::f64, where);
    on_device(mean, [&](auto device) { batch_norm_statistics(device, x.value(), mean, variance); });
    if (options.gather) rows = combine_statistics(own, options, mean, variance);
    check(rows > 1, "batch_norm: training needs more than one value per channel, x is ", x.shape());
    share = own / rows;
    on_device(mean, [&](auto device) {
      batch_norm_settle(device, mean, variance, rows, options, running_mean, running_var, state);
    });
  } else {
    on_device(x.value(), [&](auto device) {
      batch_norm_settle(device, running_mean.to(DType::f64), running_var.to(DType::f64), 0, options, Tensor(), Tensor(),
                        state);
    });
  }
  Tensor y(x.shape(), x.dtype(), where);
  on_device(y, [&](auto device) {
    batch_norm_forward(device, state, residual.defined() ? residual.value() : Tensor(), y);
  });
  if (residual.defined() && options.relu) state.y = y;
  return Var::result(y, {x, gamma, beta, residual},
                     Backward{state, options.training, options.training ? options.gather : nullptr, share, x.gradient(),
                              gamma.gradient(), beta.gradient(), residual.gradient()});
}

}  // namespace godwit::ops
