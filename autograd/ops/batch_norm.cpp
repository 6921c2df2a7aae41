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

// running = (1 - momentum) · running + momentum · batch
void move_running(const Tensor& running, const Tensor& batch, double factor, double momentum) {
  dispatch_real(running.dtype(), "batch_norm", [&]<class T>() {
    T* to = running.data<T>();
    for (int64_t c = 0; c < running.numel(); ++c)
      to[c] = static_cast<T>((1 - momentum) * static_cast<double>(to[c]) + momentum * factor * batch.data<double>()[c]);
  });
}

// Rows, mean and variance of this rank's batch become those of all ranks' together: the same bits on all ranks.
double combine_statistics(double rows, const BatchNormOptions& options, const Tensor& mean, const Tensor& variance) {
  const int64_t channels = mean.numel(), width = 1 + 2 * channels;  // rows, means, Σ (x - mean)²
  const Tensor own({width}, DType::f64);
  double* o = own.data<double>();
  double *m = mean.data<double>(), *v = variance.data<double>();
  o[0] = rows;
  for (int64_t c = 0; c < channels; ++c) {
    o[1 + c] = rows > 0 ? m[c] : 0;
    o[1 + channels + c] = rows > 0 ? rows * v[c] : 0;
  }
  const Tensor all = options.gather(own);
  const double *first = all.data<double>(), *end = first + all.numel();
  double total = 0;
  for (const double* rank = first; rank < end; rank += width) total += rank[0];
  mean.zero();
  variance.zero();
  for (const double* rank = first; rank < end; rank += width)
    for (int64_t c = 0; c < channels; ++c) m[c] += rank[0] / total * rank[1 + c];
  for (const double* rank = first; rank < end; rank += width)
    for (int64_t c = 0; c < channels; ++c) {
      const double apart = rank[1 + c] - m[c];
      v[c] += (rank[1 + channels + c] + rank[0] * apart * apart) / total;
    }
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
    const Tensor g = !state.y.defined() || ours ? dy : Tensor(dy.shape(), dy.dtype());
    const Tensor g_gamma = d_gamma ? d_gamma.target() : Tensor(state.gamma.shape(), state.gamma.dtype());
    const Tensor g_beta = d_beta ? d_beta.target() : Tensor(state.beta.shape(), state.beta.dtype());
    if (training || d_gamma || d_beta || state.y.defined())
      batch_norm_backward_parameters(Cpu{}, state, dy, g, g_gamma, g_beta);
    if (d_residual) d_residual.add(g);
    // The kernel divides by this rank's rows.
    const auto [all_gamma, all_beta] = gather ? all_sums(g_gamma, g_beta) : std::pair(g_gamma, g_beta);
    if (dx) {
      const Tensor to = ours && !d_residual ? g
                        : state.x.shared()  ? dx.target()
                                            : state.x;  // x is read for the last time
      batch_norm_backward_input(Cpu{}, state, g, training, all_gamma, all_beta, to);
      dx.add(to);
    }
    if (d_gamma) d_gamma.add(g_gamma);
    if (d_beta) d_beta.add(g_beta);
  }

  // The sums over all ranks' rows, in rank order, times this rank's share of the rows.
  std::pair<Tensor, Tensor> all_sums(const Tensor& g_gamma, const Tensor& g_beta) const {
    const int64_t channels = g_gamma.numel();
    const Tensor own({2 * channels}, DType::f64), sums = Tensor::zeros({2 * channels}, DType::f64);
    for (int64_t c = 0; c < channels; ++c) {
      own.data<double>()[c] = g_gamma.item(c);
      own.data<double>()[channels + c] = g_beta.item(c);
    }
    const Tensor all = gather(own);
    for (int64_t i = 0; i < all.numel(); ++i) sums.data<double>()[i % (2 * channels)] += share * all.item(i);
    return {sums.range(0, channels).to(g_gamma.dtype()), sums.range(channels, channels).to(g_beta.dtype())};
  }
};

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options, const Var& residual) {
  check_arguments(x, gamma, beta, running_mean, running_var, options, residual);
  Tensor mean, variance;
  double share = 1;
  if (options.training) {
    const auto own = static_cast<double>(gamma.value().numel() ? x.value().numel() / gamma.value().numel() : 0);
    double rows = own;
    mean = Tensor(gamma.shape(), DType::f64);
    variance = Tensor(gamma.shape(), DType::f64);
    batch_norm_statistics(Cpu{}, x.value(), mean, variance);
    if (options.gather) rows = combine_statistics(own, options, mean, variance);
    check(rows > 1, "batch_norm: training needs more than one value per channel, x is ", x.shape());
    share = own / rows;
    move_running(running_mean, mean, 1, options.momentum);
    move_running(running_var, variance, rows / (rows - 1), options.momentum);
  } else {
    mean = running_mean.to(DType::f64);
    variance = running_var.to(DType::f64);
  }
  for (double& v : variance.span<double>()) v = 1 / std::sqrt(v + options.eps);
  const DType dtype = gamma.dtype();
  BatchNormState state{x.value(),    mean.to(dtype), variance.to(dtype), gamma.value(), beta.value(),
                       options.relu, Tensor()};
  Tensor y(x.shape(), x.dtype());
  batch_norm_forward(Cpu{}, state, residual.defined() ? residual.value() : Tensor(), y);
  if (residual.defined() && options.relu) state.y = y;
  return Var::result(y, {x, gamma, beta, residual},
                     Backward{state, options.training, options.training ? options.gather : nullptr, share, x.gradient(),
                              gamma.gradient(), beta.gradient(), residual.gradient()});
}

}  // namespace godwit::ops
