#include "autograd/ops/batch_norm.h"

#include <cmath>
#include <vector>

#include "engine/vector_loop.h"

namespace godwit {
namespace {

// How [rows, c] is walked: as flat memory in lanes, the shortest run of whole rows of at least 256 elements, so that
// few channels vectorise too. Sums are taken per block of lanes in compute_t and over the blocks, in order, in float64;
// the cut depends on the shape only, so the sums do not depend on the number of threads.
struct Walk {
  int64_t numel, channels, rows, lanes, block, blocks;  // lanes and block in elements

  explicit Walk(const Tensor& x) : numel(x.numel()), channels(x.dim(x.shape().rank() - 1)) {
    const int64_t c = std::max<int64_t>(channels, 1);
    rows = numel / c;
    lanes = c * ((255 + c) / c);
    block = lanes * std::max<int64_t>(16, (1 << 14) / lanes);
    blocks = (numel + block - 1) / block;
  }
  int64_t size_of(int64_t b) const { return std::min(block, numel - b * block); }
  double rows_of(int64_t b) const { return static_cast<double>(size_of(b) / channels); }

  // out[l] = per_channel[channel of l]
  template <class T, class From>
  void spread(const From* per_channel, T* out) const {
    for (int64_t l = 0; l < lanes; l += channels)
      for (int64_t c = 0; c < channels; ++c) out[l + c] = static_cast<T>(per_channel[c]);
  }
  template <class T>
  std::vector<T> spread(const Tensor& per_channel) const {
    std::vector<T> result(lanes);
    spread(per_channel.data<T>(), result.data());
    return result;
  }
  // per_channel[c] = Σ of the lanes of c, in order
  template <class T>
  GODWIT_INLINE void fold(const T* sums, double* per_channel) const {
    for (int64_t c = 0; c < channels; ++c) per_channel[c] = static_cast<double>(sums[c]);
    for (int64_t l = channels; l < lanes; l += channels)
      for (int64_t c = 0; c < channels; ++c) per_channel[c] += static_cast<double>(sums[l + c]);
  }
};

// Mean and Σ (x - mean)² of every channel of a block, in two passes while it is in cache, each about a center that
// keeps the sums small: the first row, then the mean.
template <class T>
struct BlockStatistics {
  using C = compute_t<T>;
  explicit BlockStatistics(const Walk& w) : walk(w), sums(w.lanes), center(w.lanes) {}

  GODWIT_INLINE void run(const T* x, int64_t n, double* mean, double* squares) {
    walk.spread(x, center.data());
    add(
        x, n, [](C d) GODWIT_INLINE { return d; }, mean);
    const double rows = static_cast<double>(n / walk.channels);
    for (int64_t c = 0; c < walk.channels; ++c) mean[c] = static_cast<double>(x[c]) + mean[c] / rows;
    walk.spread(mean, center.data());
    add(
        x, n, [](C d) GODWIT_INLINE { return d * d; }, squares);
  }

 private:
  // result[c] = Σ f(x - center); four lanes at a time take less traffic and round less.
  template <class F>
  GODWIT_INLINE void add(const T* x, int64_t n, F f, double* result) {
    const int64_t lanes = walk.lanes;
    const C* m = center.data();
    C* __restrict sum = sums.data();
    std::fill(sums.begin(), sums.end(), C(0));
    for (; n >= 4 * lanes; n -= 4 * lanes, x += 4 * lanes) {
      const T *x1 = x + lanes, *x2 = x1 + lanes, *x3 = x2 + lanes;
      for (int64_t l = 0; l < lanes; ++l)
        sum[l] += (f(C(x[l]) - m[l]) + f(C(x1[l]) - m[l])) + (f(C(x2[l]) - m[l]) + f(C(x3[l]) - m[l]));
    }
    for (; n > 0; n -= lanes, x += lanes)
      for (int64_t l = 0; l < std::min(lanes, n); ++l) sum[l] += f(C(x[l]) - m[l]);
    walk.fold(sum, result);
  }

  const Walk& walk;
  std::vector<C> sums, center;
};

// What the passes over x and dy read, spread over the lanes.
template <class T>
struct Lanes {
  std::vector<T> mean, scale, beta;

  Lanes(const Walk& walk, const BatchNormState& state)
      : mean(walk.spread<T>(state.mean)), scale(walk.spread<T>(state.gamma)), beta(walk.spread<T>(state.beta)) {
    const std::vector<T> inv_std = walk.spread<T>(state.inv_std);
    for (int64_t l = 0; l < walk.lanes; ++l) scale[l] *= inv_std[l];
  }
};

template <bool relu, class T>
GODWIT_INLINE inline void normalise(const T* x, int64_t n, const Lanes<compute_t<T>>& lanes, T* __restrict y) {
  using C = compute_t<T>;
  const C *mean = lanes.mean.data(), *scale = lanes.scale.data(), *beta = lanes.beta.data();
  for (int64_t l = 0; l < n; ++l) {
    const C value = (C(x[l]) - mean[l]) * scale[l] + beta[l];
    y[l] = static_cast<T>(relu && value < 0 ? C(0) : value);
  }
}

// dy behind the relu, whose output is that of normalise() again.
template <bool relu, class T>
GODWIT_INLINE inline T passed(T centered, T scale, T beta, T dy) {
  return relu && centered * scale + beta <= 0 ? T(0) : dy;
}

// sums[l] = Σ g, products[l] = Σ g · (x - mean) over a block, where g is dy behind the relu.
template <bool relu, class T>
GODWIT_INLINE inline void add_products(const T* x, const T* dy, int64_t n, int64_t lanes,
                                       const Lanes<compute_t<T>>& per_lane, compute_t<T>* __restrict sums,
                                       compute_t<T>* __restrict products) {
  using C = compute_t<T>;
  const C *mean = per_lane.mean.data(), *scale = per_lane.scale.data(), *beta = per_lane.beta.data();
  std::fill_n(sums, lanes, C(0));
  std::fill_n(products, lanes, C(0));
  for (; n >= 4 * lanes; n -= 4 * lanes, x += 4 * lanes, dy += 4 * lanes) {
    const T *x1 = x + lanes, *x2 = x1 + lanes, *x3 = x2 + lanes;
    const T *dy1 = dy + lanes, *dy2 = dy1 + lanes, *dy3 = dy2 + lanes;
    for (int64_t l = 0; l < lanes; ++l) {
      const C d0 = C(x[l]) - mean[l], d1 = C(x1[l]) - mean[l], d2 = C(x2[l]) - mean[l], d3 = C(x3[l]) - mean[l];
      const C g0 = passed<relu, C>(d0, scale[l], beta[l], dy[l]), g1 = passed<relu, C>(d1, scale[l], beta[l], dy1[l]);
      const C g2 = passed<relu, C>(d2, scale[l], beta[l], dy2[l]), g3 = passed<relu, C>(d3, scale[l], beta[l], dy3[l]);
      sums[l] += (g0 + g1) + (g2 + g3);
      products[l] += (g0 * d0 + g1 * d1) + (g2 * d2 + g3 * d3);
    }
  }
  for (; n > 0; n -= lanes, x += lanes, dy += lanes)
    for (int64_t l = 0; l < std::min(lanes, n); ++l) {
      const C d = C(x[l]) - mean[l], g = passed<relu, C>(d, scale[l], beta[l], dy[l]);
      sums[l] += g;
      products[l] += g * d;
    }
}

// dx = scale · (g - offset - slope · (x - mean))
template <bool relu, class T>
GODWIT_INLINE inline void input_gradient(const T* x, const T* dy, int64_t n, const Lanes<compute_t<T>>& lanes,
                                         const compute_t<T>* offset, const compute_t<T>* slope, T* __restrict dx) {
  using C = compute_t<T>;
  const C *mean = lanes.mean.data(), *scale = lanes.scale.data(), *beta = lanes.beta.data();
  for (int64_t l = 0; l < n; ++l) {
    const C d = C(x[l]) - mean[l], g = passed<relu, C>(d, scale[l], beta[l], dy[l]);
    dx[l] = static_cast<T>(scale[l] * (g - offset[l] - slope[l] * d));
  }
}

// f<T, relu>(): the loops are compiled for every type, with and without relu.
template <class F>
void dispatch(const BatchNormState& state, F&& f) {
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    if (state.relu) f.template operator()<T, true>();
    else f.template operator()<T, false>();
  });
}

}  // namespace

void batch_norm_statistics(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance) {
  const Walk walk(x);
  const Tensor partial({2, walk.blocks, walk.channels}, DType::f64);  // mean and Σ (x - mean)² of each block
  double *means = partial.data<double>(), *squares = means + walk.blocks * walk.channels;
  dispatch_float(x.dtype(), "batch_norm", [&]<class T>() {
    vector_for(walk.blocks, 1, [&, from = x.data<T>()](int64_t begin, int64_t end) GODWIT_INLINE {
      BlockStatistics<T> block(walk);
      for (int64_t b = begin; b < end; ++b)
        block.run(from + b * walk.block, walk.size_of(b), means + b * walk.channels, squares + b * walk.channels);
    });
  });
  double *m = mean.data<double>(), *v = variance.data<double>();
  mean.zero();
  variance.zero();
  const auto rows = static_cast<double>(walk.rows);
  for (int64_t b = 0; b < walk.blocks; ++b)
    for (int64_t c = 0; c < walk.channels; ++c) m[c] += walk.rows_of(b) / rows * means[b * walk.channels + c];
  for (int64_t b = 0; b < walk.blocks; ++b)
    for (int64_t c = 0; c < walk.channels; ++c) {
      const double apart = means[b * walk.channels + c] - m[c];
      v[c] += (squares[b * walk.channels + c] + walk.rows_of(b) * apart * apart) / rows;
    }
}

void batch_norm_forward(Cpu, const BatchNormState& state, const Tensor& y) {
  const Walk walk(state.x);
  dispatch(state, [&]<class T, bool relu>() {
    using C = compute_t<T>;
    const Lanes<C> lanes(walk, state);
    vector_for(walk.blocks, 1, [&, x = state.x.data<T>(), out = y.data<T>()](int64_t begin, int64_t end) GODWIT_INLINE {
      const int64_t stop = std::min(walk.numel, end * walk.block);
      for (int64_t at = begin * walk.block; at < stop; at += walk.lanes)
        normalise<relu>(x + at, std::min(walk.lanes, stop - at), lanes, out + at);
    });
  });
}

void batch_norm_backward_parameters(Cpu, const BatchNormState& state, const Tensor& dy, const Tensor& d_gamma,
                                    const Tensor& d_beta) {
  const Walk walk(state.x);
  const Tensor partial({2, walk.blocks, walk.channels}, DType::f64);  // Σ g and Σ g · (x - mean) of each block
  double *sums = partial.data<double>(), *products = sums + walk.blocks * walk.channels;
  dispatch(state, [&]<class T, bool relu>() {
    using C = compute_t<T>;
    const Lanes<C> lanes(walk, state);
    vector_for(walk.blocks, 1, [&, x = state.x.data<T>(), g = dy.data<T>()](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<C> sum(walk.lanes), product(walk.lanes);
      for (int64_t b = begin; b < end; ++b) {
        add_products<relu>(x + b * walk.block, g + b * walk.block, walk.size_of(b), walk.lanes, lanes, sum.data(),
                           product.data());
        walk.fold(sum.data(), sums + b * walk.channels);
        walk.fold(product.data(), products + b * walk.channels);
      }
    });
    for (int64_t b = 1; b < walk.blocks; ++b)
      for (int64_t c = 0; c < walk.channels; ++c) {
        sums[c] += sums[b * walk.channels + c];
        products[c] += products[b * walk.channels + c];
      }
    for (int64_t c = 0; c < walk.channels; ++c) {
      d_beta.data<C>()[c] = static_cast<C>(walk.blocks ? sums[c] : 0);
      d_gamma.data<C>()[c] = static_cast<C>(walk.blocks ? products[c] * state.inv_std.item(c) : 0);
    }
  });
}

void batch_norm_backward_input(Cpu, const BatchNormState& state, const Tensor& dy, bool training, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& dx) {
  const Walk walk(state.x);
  dispatch(state, [&]<class T, bool relu>() {
    using C = compute_t<T>;
    const Lanes<C> lanes(walk, state);
    std::vector<double> by_channel(walk.channels);
    std::vector<C> offset(walk.lanes), slope(walk.lanes);
    if (training) {
      const auto rows = static_cast<double>(walk.rows);
      for (int64_t c = 0; c < walk.channels; ++c) by_channel[c] = d_beta.item(c) / rows;
      walk.spread(by_channel.data(), offset.data());
      for (int64_t c = 0; c < walk.channels; ++c) by_channel[c] = d_gamma.item(c) * state.inv_std.item(c) / rows;
      walk.spread(by_channel.data(), slope.data());
    }
    vector_for(walk.blocks, 1,
               [&, x = state.x.data<T>(), g = dy.data<T>(), out = dx.data<T>()](int64_t begin, int64_t end)
                   GODWIT_INLINE {
                     const int64_t stop = std::min(walk.numel, end * walk.block);
                     for (int64_t at = begin * walk.block; at < stop; at += walk.lanes)
                       input_gradient<relu>(x + at, g + at, std::min(walk.lanes, stop - at), lanes, offset.data(),
                                            slope.data(), out + at);
                   });
  });
}

namespace ops {
namespace {

void check_arguments(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean,
                     const Tensor& running_var, const BatchNormOptions& options) {
  check(x.shape().rank() >= 2, "batch_norm: x must be [.., channels], it is ", x.shape());
  const int64_t channels = x.dim(x.shape().rank() - 1);
  const DType expected = x.dtype() == DType::bf16 ? DType::f32 : x.dtype();
  for (const auto& [name, tensor] : {std::pair{"gamma", gamma.value()},
                                     {"beta", beta.value()},
                                     {"running_mean", running_mean},
                                     {"running_var", running_var}})
    check(tensor.defined() && tensor.shape() == Shape{channels} && tensor.dtype() == expected, "batch_norm: ", name,
          " is ", tensor.dtype(), " ", tensor.shape(), ", x is ", x.dtype(), " ", x.shape());
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

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options) {
  check_arguments(x, gamma, beta, running_mean, running_var, options);
  Tensor mean, variance;
  if (options.training) {
    const int64_t rows = gamma.value().numel() ? x.value().numel() / gamma.value().numel() : 0;
    check(rows > 1, "batch_norm: training needs more than one value per channel, x is ", x.shape());
    mean = Tensor(gamma.shape(), DType::f64);
    variance = Tensor(gamma.shape(), DType::f64);
    batch_norm_statistics(Cpu{}, x.value(), mean, variance);
    move_running(running_mean, mean, 1, options.momentum);
    move_running(running_var, variance, static_cast<double>(rows) / static_cast<double>(rows - 1), options.momentum);
  } else {
    mean = running_mean.to(DType::f64);
    variance = running_var.to(DType::f64);
  }
  for (double& v : variance.span<double>()) v = 1 / std::sqrt(v + options.eps);
  const DType dtype = gamma.dtype();
  const BatchNormState state{x.value(), mean.to(dtype), variance.to(dtype), gamma.value(), beta.value(), options.relu};
  Tensor y(x.shape(), x.dtype());
  batch_norm_forward(Cpu{}, state, y);
  return Var::result(y, {x, gamma, beta},
                     [dx = x.gradient(), d_gamma = gamma.gradient(), d_beta = beta.gradient(), state,
                      training = options.training](const Tensor& dy) {
                       Tensor g_gamma = d_gamma ? d_gamma.target() : Tensor(state.gamma.shape(), state.gamma.dtype());
                       Tensor g_beta = d_beta ? d_beta.target() : Tensor(state.beta.shape(), state.beta.dtype());
                       if (training || d_gamma || d_beta)
                         batch_norm_backward_parameters(Cpu{}, state, dy, g_gamma, g_beta);
                       if (dx) {
                         Tensor g = dx.target();
                         batch_norm_backward_input(Cpu{}, state, dy, training, g_gamma, g_beta, g);
                         dx.add(g);
                       }
                       if (d_gamma) d_gamma.add(g_gamma);
                       if (d_beta) d_beta.add(g_beta);
                     });
}

}  // namespace ops
}  // namespace godwit
