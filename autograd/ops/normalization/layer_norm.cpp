#include "autograd/ops/normalization/layer_norm.h"

#include <cmath>
#include <utility>
#include <vector>

#include "engine/row_sum.h"

namespace godwit {
namespace {

// Rows per block. Parameter gradients are summed in compute_t within a block and in float64 over the blocks.
constexpr int64_t kRows = 32;

int64_t row_grain(int64_t width) { return std::max<int64_t>(1, (1 << 14) / (width + 1)); }

void check_layer_norm(const char* operation, const Var& x, const Var& gamma, const Var& beta, double eps) {
  check(x.shape().rank() == 2 && x.dim(1) > 0, operation, ": x must be [n, width], got ", x.shape());
  const DType type = compute_dtype(x.dtype());
  for (const auto& [name, parameter] : {std::pair{"gamma", gamma.value()}, {"beta", beta.value()}})
    check(parameter.shape() == Shape{x.dim(1)} && parameter.dtype() == type, operation, ": ", name, " must be ", type,
          " ", Shape{x.dim(1)}, ", got ", parameter.dtype(), " ", parameter.shape());
  check(!(gamma == beta), operation, ": gamma and beta must be two variables");
  check(eps >= 0 && std::isfinite(eps), operation, ": eps must be finite and not negative, got ", eps);
}

// State captured for backward.
struct Backward {
  Tensor x, gamma, mean, inv_std;
  Gradient dx, d_residual, d_gamma, d_beta;

  void operator()(const Tensor& dy) const {
    const Tensor g = dy.shared() ? Tensor(x.shape(), x.dtype(), x.device()) : dy;
    const Tensor g_gamma = d_gamma ? d_gamma.target() : Tensor(gamma.shape(), gamma.dtype(), gamma.device());
    const Tensor g_beta = d_beta ? d_beta.target() : Tensor(gamma.shape(), gamma.dtype(), gamma.device());
    on_device(x, [&](auto device) { layer_norm_backward(device, x, gamma, mean, inv_std, dy, g, g_gamma, g_beta); });
    if (dx) dx.add(g);
    if (d_residual) d_residual.add(g);
    if (d_gamma) d_gamma.add(g_gamma);
    if (d_beta) d_beta.add(g_beta);
  }
};

Var normalize(const Var& x, const Var& residual, const Var& gamma, const Var& beta, double eps) {
  const DType type = gamma.dtype();
  const Device where = x.device();
  const Tensor y(x.shape(), x.dtype(), where), mean({x.dim(0)}, type, where), inv_std({x.dim(0)}, type, where);
  const Tensor sum = residual.defined() ? Tensor(x.shape(), x.dtype(), x.device()) : x.value();
  on_device(y, [&](auto device) {
    layer_norm_forward(device, x.value(), residual.defined() ? residual.value() : Tensor(), gamma.value(), beta.value(),
                       eps, sum, y, mean, inv_std);
  });
  return Var::result(y, {x, residual, gamma, beta},
                     Backward{sum, gamma.value(), mean, inv_std, x.gradient(), residual.gradient(), gamma.gradient(),
                              beta.gradient()});
}

}  // namespace

void layer_norm_forward(Cpu, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std) {
  const int64_t width = x.dim(1);
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *all = x.data<T>(), *plus = residual.defined() ? residual.data<T>() : nullptr;
    const C *scale = gamma.data<C>(), *shift = beta.data<C>();
    T *sums = sum.data<T>(), *out = y.data<T>();
    C *means = mean.data<C>(), *inv_stds = inv_std.data<C>();
    const C share = C(1) / static_cast<C>(width), margin = static_cast<C>(eps);
    compute_for(x.dim(0), row_grain(width), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = all + i * width;
        if (plus) {
          const T* other = plus + i * width;
          T* to = sums + i * width;
          GODWIT_IN_PLACE
          for (int64_t c = 0; c < width; ++c) to[c] = static_cast<T>(C(row[c]) + C(other[c]));
          row = to;
        }
        const C m = row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE { return C(row[c]); }) * share;
        const C squares = row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE {
          const C d = C(row[c]) - m;
          return d * d;
        });
        const C inv = 1 / std::sqrt(squares * share + margin);
        T* to = out + i * width;
        for (int64_t c = 0; c < width; ++c) to[c] = static_cast<T>((C(row[c]) - m) * inv * scale[c] + shift[c]);
        means[i] = m;
        inv_stds[i] = inv;
      }
    });
  });
}

// With x̂ = (x - mean) · inv_std and g = dy · gamma: dx = inv_std · (g - mean(g) - x̂ · mean(g · x̂)),
// d_gamma = Σ dy · x̂, d_beta = Σ dy.
void layer_norm_backward(Cpu, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta) {
  const int64_t n = x.dim(0), width = x.dim(1), blocks = (n + kRows - 1) / kRows;
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor partial = Tensor::zeros({blocks, 2, width}, dtype_of<C>);
    const T *all = x.data<T>(), *from = dy.data<T>();
    const C *scale = gamma.data<C>(), *means = mean.data<C>(), *inv_stds = inv_std.data<C>();
    C* sums = partial.data<C>();
    T* to = dx.data<T>();
    const C share = C(1) / static_cast<C>(width);
    compute_for(blocks, std::max<int64_t>(1, row_grain(width) / kRows), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<C> centered(width), scaled(width);  // x̂ and g of a row
      C *x_hat = centered.data(), *g = scaled.data();
      for (int64_t i = begin * kRows; i < std::min(n, end * kRows); ++i) {
        const T *row = all + i * width, *in = from + i * width;
        C *by_gamma = sums + i / kRows * 2 * width, *by_beta = by_gamma + width;
        const C m = means[i], inv = inv_stds[i];
        GODWIT_IN_PLACE
        for (int64_t c = 0; c < width; ++c) {
          const C d = C(in[c]), h = (C(row[c]) - m) * inv;
          by_gamma[c] += d * h;
          by_beta[c] += d;
          x_hat[c] = h;
          g[c] = d * scale[c];
        }
        const C offset = row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE { return g[c]; }) * share;
        const C slope = row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE { return g[c] * x_hat[c]; }) * share;
        T* out = to + i * width;
        for (int64_t c = 0; c < width; ++c) out[c] = static_cast<T>(inv * (g[c] - offset - x_hat[c] * slope));
      }
    });
    C *to_gamma = d_gamma.data<C>(), *to_beta = d_beta.data<C>();
    compute_for(width, std::max<int64_t>(16, (1 << 15) / (blocks + 1)), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t c = begin; c < end; ++c) {
        double of_gamma = 0, of_beta = 0;
        for (int64_t b = 0; b < blocks; ++b) {
          of_gamma += static_cast<double>(sums[b * 2 * width + c]);
          of_beta += static_cast<double>(sums[(b * 2 + 1) * width + c]);
        }
        to_gamma[c] = static_cast<C>(of_gamma);
        to_beta[c] = static_cast<C>(of_beta);
      }
    });
  });
}

namespace ops {

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double eps) {
  check_layer_norm("layer_norm", x, gamma, beta, eps);
  return normalize(x, Var(), gamma, beta, eps);
}

Var add_layer_norm(const Var& x, const Var& residual, const Var& gamma, const Var& beta, double eps) {
  check_like(residual.value(), x.value(), "add_layer_norm", "residual");
  check_layer_norm("add_layer_norm", x, gamma, beta, eps);
  return normalize(x, residual, gamma, beta, eps);
}

}  // namespace ops
}  // namespace godwit
