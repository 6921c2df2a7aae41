#include <cmath>
#include <new>
#include <vector>

#include "autograd/ops/normalization/batch_norm.h"
#include "autograd/ops/normalization/batch_norm_avx512.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kRun = 64;  // maximum rows of lanes summed in compute_t before the sums are added in float64
constexpr int64_t kBlocks = 64;         // maximum
constexpr int64_t kElements = 1 << 17;  // minimum per block, if there are more than two blocks

// Allocator for vectors aligned to cache lines, so that the widest loads do not cross lines.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};
template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

// Traversal of [rows, c] as flat memory. The lanes are the shortest run of whole rows with at least 512 elements, so
// that loops over few channels vectorize too. Sums are taken per run of lanes in compute_t, then per block and over the
// blocks, in order, in float64. The split depends only on the shape, so sums do not depend on the thread count. In the
// first of two passes, each thread visits its blocks from last to first, because the end of the most recently written
// tensor is still in the cache. The second pass then finds the beginning in the cache.
struct Walk {
  int64_t numel, channels, rows, lanes, run, block, blocks;  // lanes, run and block in elements

  explicit Walk(const Tensor& x) : numel(x.numel()), channels(x.dim(x.shape().rank() - 1)) {
    const int64_t c = std::max<int64_t>(channels, 1);
    rows = numel / c;
    lanes = c * ((511 + c) / c);
    // Blocks of equal size, split into runs of about equal size; both are multiples of four rows, which are summed
    // together.
    const int64_t count = std::clamp<int64_t>(numel / kElements, 2, kBlocks);
    auto fours = [](int64_t n, int64_t parts) { return std::max<int64_t>(1, (n + 4 * parts - 1) / (4 * parts)) * 4; };
    const int64_t block_rows = fours((numel + lanes - 1) / lanes, count);
    run = lanes * fours(block_rows, (block_rows + kRun - 1) / kRun);
    block = lanes * block_rows;
    blocks = (numel + block - 1) / block;
  }
  int64_t end_of(int64_t b) const { return std::min(numel, (b + 1) * block); }

  // out[l] = per_channel[channel of l]
  template <class T, class From>
  void spread(const From* per_channel, T* out) const {
    for (int64_t l = 0; l < lanes; l += channels)
      for (int64_t c = 0; c < channels; ++c) out[l + c] = static_cast<T>(per_channel[c]);
  }
  template <class T>
  LineVector<T> spread(const Tensor& per_channel) const {
    LineVector<T> result(lanes);
    spread(per_channel.data<T>(), result.data());
    return result;
  }
  // per_channel[c] += Σ over the lanes of c, in order
  template <class T>
  GODWIT_INLINE void fold(const T* sums, double* __restrict per_channel) const {
    for (int64_t l = 0; l < lanes; l += channels)
      for (int64_t c = 0; c < channels; ++c) per_channel[c] += static_cast<double>(sums[l + c]);
  }
};

// Two sums per channel in float64, per block and in total.
struct Sums {
  explicit Sums(const Walk& w)
      : walk(w), first(Tensor::zeros({w.blocks + 1, w.channels}, DType::f64)), second(first.clone()) {}

  double* first_of(int64_t b) const { return first.data<double>() + b * walk.channels; }
  double* second_of(int64_t b) const { return second.data<double>() + b * walk.channels; }
  const double* total_first() const { return total(first); }
  const double* total_second() const { return total(second); }

  const Walk& walk;
  Tensor first, second;

 private:
  const double* total(const Tensor& sums) const {
    const double* from = sums.data<double>();
    double* to = sums.data<double>() + walk.blocks * walk.channels;
    for (int64_t b = 0; b < walk.blocks; ++b, from += walk.channels)
      for (int64_t c = 0; c < walk.channels; ++c) to[c] += from[c];
    return to;
  }
};

// sums[l] += Σ (x - center), squares[l] += Σ (x - center)². Four rows of lanes at a time reduce memory traffic and
// rounding error.
template <class T, class C = compute_t<T>>
GODWIT_INLINE inline void add_squares(const T* x, int64_t n, int64_t lanes, const C* center, C* __restrict sums,
                                      C* __restrict squares) {
  for (; n >= 4 * lanes; n -= 4 * lanes, x += 4 * lanes) {
    const T *x1 = x + lanes, *x2 = x1 + lanes, *x3 = x2 + lanes;
    for (int64_t l = 0; l < lanes; ++l) {
      const C d0 = C(x[l]) - center[l], d1 = C(x1[l]) - center[l], d2 = C(x2[l]) - center[l], d3 = C(x3[l]) - center[l];
      sums[l] += (d0 + d1) + (d2 + d3);
      squares[l] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; n > 0; n -= lanes, x += lanes)
    for (int64_t l = 0; l < std::min(lanes, n); ++l) {
      const C d = C(x[l]) - center[l];
      sums[l] += d;
      squares[l] += d * d;
    }
}

// add_squares() with AVX512_BF16 instructions; returns false if T is not bfloat16.
template <class T, class C = compute_t<T>>
bool by_instruction(const T* x, int64_t n, int64_t lanes, const C* center, C* sums, C* squares) {
  if constexpr (std::is_same_v<T, bf16>) detail::add_squares_avx512(x, n, lanes, center, sums, squares);
  return std::is_same_v<T, bf16>;
}

// mean and variance [c] in one pass, from the sums about a center of each channel.
template <class T>
void statistics_about(const Walk& walk, const T* x, const std::vector<double>& center, double* mean, double* variance) {
  using C = compute_t<T>;
  LineVector<C> lanes(walk.lanes);
  walk.spread(center.data(), lanes.data());
  const Sums sums(walk);
  const bool instructions = detail::fits_norm_avx512(walk.channels);
  vector_for(walk.blocks, 1, [&](int64_t begin, int64_t end) GODWIT_INLINE {
    LineVector<C> sum(walk.lanes), squares(walk.lanes);
    for (int64_t b = end; b-- > begin;)
      for (int64_t at = b * walk.block, stop = walk.end_of(b); at < stop; at += walk.run) {
        std::fill(sum.begin(), sum.end(), C(0));
        std::fill(squares.begin(), squares.end(), C(0));
        const int64_t n = std::min(walk.run, stop - at);
        if (!instructions || !by_instruction(x + at, n, walk.lanes, lanes.data(), sum.data(), squares.data()))
          add_squares(x + at, n, walk.lanes, lanes.data(), sum.data(), squares.data());
        walk.fold(sum.data(), sums.first_of(b));
        walk.fold(squares.data(), sums.second_of(b));
      }
  });
  const double *sum = sums.total_first(), *squares = sums.total_second(), rows = static_cast<double>(walk.rows);
  for (int64_t c = 0; c < walk.channels; ++c) {
    const double apart = sum[c] / rows;
    mean[c] = static_cast<double>(lanes[c]) + apart;
    variance[c] = std::max(squares[c] / rows - apart * apart, 0.0);
  }
}

// Mean of up to eight evenly spaced rows.
template <class T>
std::vector<double> guess_mean(const Walk& walk, const T* x) {
  std::vector<double> mean(walk.channels);
  const int64_t samples = std::min<int64_t>(8, walk.rows);
  for (int64_t s = 0; s < samples; ++s) {
    const T* row = x + s * (walk.rows / samples) * walk.channels;
    for (int64_t c = 0; c < walk.channels; ++c)
      mean[c] += static_cast<double>(static_cast<compute_t<T>>(row[c])) / static_cast<double>(samples);
  }
  return mean;
}

// Parameters of the passes over x and dy, repeated over the lanes.
template <class C>
struct Lanes {
  LineVector<C> mean, scale, beta;

  Lanes(const Walk& walk, const BatchNormState& state)
      : mean(walk.spread<C>(state.mean)), scale(walk.spread<C>(state.gamma)), beta(walk.spread<C>(state.beta)) {
    const LineVector<C> inv_std = walk.spread<C>(state.inv_std);
    for (int64_t l = 0; l < walk.lanes; ++l) scale[l] *= inv_std[l];
  }
};

template <bool relu, bool residual, class T>
GODWIT_INLINE inline void normalize(const T* x, const T* plus, int64_t n, const Lanes<compute_t<T>>& lanes,
                                    T* __restrict y) {
  using C = compute_t<T>;
  const C *mean = lanes.mean.data(), *scale = lanes.scale.data(), *beta = lanes.beta.data();
  for (int64_t l = 0; l < n; ++l) {
    C value = (C(x[l]) - mean[l]) * scale[l] + beta[l];
    if (residual) value += C(plus[l]);
    y[l] = static_cast<T>(relu && value < 0 ? C(0) : value);
  }
}

using detail::Mask;

Mask mask_of(const BatchNormState& state) {
  return !state.relu ? Mask::none : state.y.defined() ? Mask::output : Mask::recomputed;
}

template <Mask mask, class C>
GODWIT_INLINE inline C passed(C centered, C scale, C beta, C y, C dy) {
  if (mask == Mask::recomputed) return centered * scale + beta <= 0 ? C(0) : dy;
  return mask == Mask::output && y <= 0 ? C(0) : dy;
}

// Arrays that the first pass of backward reads and, with a residual, writes.
template <class T>
struct Streams {
  const T *x, *dy, *y;
  T* g;
};

// sums[l] += Σ g, products[l] += Σ g · (x - mean), where g is dy after the ReLU mask.
template <Mask mask, class T, class C = compute_t<T>>
GODWIT_INLINE inline void add_products(Streams<T> in, int64_t n, int64_t lanes, const Lanes<C>& per_lane,
                                       C* __restrict sums, C* __restrict products) {
  const C *mean = per_lane.mean.data(), *scale = per_lane.scale.data(), *beta = per_lane.beta.data();
  auto step = [&](int64_t i, int64_t l, C& d) GODWIT_INLINE {
    d = C(in.x[i]) - mean[l];
    const C g = passed<mask, C>(d, scale[l], beta[l], mask == Mask::output ? C(in.y[i]) : C(0), in.dy[i]);
    if (mask == Mask::output) in.g[i] = static_cast<T>(g);
    return g;
  };
  int64_t at = 0;
  for (; n - at >= 4 * lanes; at += 4 * lanes) {
    GODWIT_IN_PLACE
    for (int64_t l = 0; l < lanes; ++l) {
      C d0, d1, d2, d3;
      const C g0 = step(at + l, l, d0), g1 = step(at + lanes + l, l, d1);
      const C g2 = step(at + 2 * lanes + l, l, d2), g3 = step(at + 3 * lanes + l, l, d3);
      sums[l] += (g0 + g1) + (g2 + g3);
      products[l] += (g0 * d0 + g1 * d1) + (g2 * d2 + g3 * d3);
    }
  }
  for (; at < n; at += lanes) {
    const int64_t count = std::min(lanes, n - at);
    GODWIT_IN_PLACE
    for (int64_t l = 0; l < count; ++l) {
      C d;
      const C g = step(at + l, l, d);
      sums[l] += g;
      products[l] += g * d;
    }
  }
}

// add_products() with AVX512_BF16 instructions; returns false if T is not bfloat16.
template <class T, class C = compute_t<T>>
bool by_instruction(const Streams<T>& in, int64_t n, int64_t lanes, const Lanes<C>& per_lane, Mask mask, C* sums,
                    C* products) {
  if constexpr (std::is_same_v<T, bf16>)
    detail::add_products_avx512(
        {in.x, in.dy, in.g, lanes, per_lane.mean.data(), per_lane.scale.data(), per_lane.beta.data(), nullptr, nullptr},
        mask, in.y, n, sums, products);
  return std::is_same_v<T, bf16>;
}

// dx = scale · (g - offset - slope · (x - mean))
template <bool relu, class T, class C = compute_t<T>>
GODWIT_INLINE inline void input_gradient(const T* x, const T* dy, int64_t n, const Lanes<C>& lanes, const C* offset,
                                         const C* slope, T* dx) {
  const C *mean = lanes.mean.data(), *scale = lanes.scale.data(), *beta = lanes.beta.data();
  constexpr Mask mask = relu ? Mask::recomputed : Mask::none;
  GODWIT_IN_PLACE
  for (int64_t l = 0; l < n; ++l) {
    const C d = C(x[l]) - mean[l], g = passed<mask, C>(d, scale[l], beta[l], C(0), dy[l]);
    dx[l] = static_cast<T>(scale[l] * (g - offset[l] - slope[l] * d));
  }
}

// Calls f.operator()<flag>() for a run-time flag.
template <class F>
void dispatch_bool(bool flag, F&& f) {
  if (flag) f.template operator()<true>();
  else f.template operator()<false>();
}

}  // namespace

void batch_norm_statistics(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance) {
  const Walk walk(x);
  double *m = mean.data<double>(), *v = variance.data<double>();
  dispatch_float(x.dtype(), "batch_norm", [&]<class T>() {
    const std::vector<double> center = guess_mean(walk, x.data<T>());
    statistics_about(walk, x.data<T>(), center, m, v);
    // True if a mean is more than eight standard deviations from its center: the difference of sums then has 64 times
    // the rounding error.
    bool far = false;
    for (int64_t c = 0; c < walk.channels; ++c) far |= (m[c] - center[c]) * (m[c] - center[c]) > 64 * v[c];
    if (far) statistics_about(walk, x.data<T>(), std::vector<double>(m, m + walk.channels), m, v);
  });
}

// running = (1 - momentum) · running + momentum · batch, with the unbiased variance
void batch_norm_finalize(Cpu, const Tensor& mean, const Tensor& variance, double rows, const Tensor& all_rows,
                         const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormState& state) {
  if (all_rows.defined()) rows = all_rows.item();
  const double *m = mean.data<double>(), *v = variance.data<double>(), momentum = options.momentum;
  dispatch_real(state.mean.dtype(), "batch_norm", [&]<class C>() {
    const auto move = [=](const Tensor& running, const double* batch, double factor) {
      if (!running.defined()) return;
      C* to = running.data<C>();
      for (int64_t c = 0; c < running.numel(); ++c)
        to[c] = static_cast<C>((1 - momentum) * static_cast<double>(to[c]) + momentum * factor * batch[c]);
    };
    move(running_mean, m, 1);
    move(running_var, v, rows / (rows - 1));
    for (int64_t c = 0; c < mean.numel(); ++c) {
      state.mean.data<C>()[c] = static_cast<C>(m[c]);
      state.inv_std.data<C>()[c] = static_cast<C>(1 / std::sqrt(v[c] + options.eps));
    }
  });
}

void batch_norm_forward(Cpu, const BatchNormState& state, const Tensor& residual, const Tensor& y) {
  const Walk walk(state.x);
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    const Lanes<compute_t<T>> lanes(walk, state);
    const T *x = state.x.data<T>(), *plus = residual.defined() ? residual.data<T>() : nullptr;
    T* out = y.data<T>();
    if constexpr (std::is_same_v<T, bf16>)
      if (detail::fits_norm_avx512(walk.channels)) {
        const detail::NormPass pass{
            x, plus, out, walk.lanes, lanes.mean.data(), lanes.scale.data(), lanes.beta.data(), nullptr, nullptr};
        return parallel_for(walk.blocks, 1, [&](int64_t begin, int64_t end) {
          detail::normalize_avx512(pass, state.relu, begin * walk.block, std::min(walk.numel, end * walk.block));
        });
      }
    dispatch_bool(state.relu, [&]<bool relu>() {
      dispatch_bool(plus != nullptr, [&]<bool add>() {
        vector_for(walk.blocks, 1, [&](int64_t begin, int64_t end) GODWIT_INLINE {
          const int64_t stop = std::min(walk.numel, end * walk.block);
          for (int64_t at = begin * walk.block; at < stop; at += walk.lanes)
            normalize<relu, add>(x + at, add ? plus + at : nullptr, std::min(walk.lanes, stop - at), lanes, out + at);
        });
      });
    });
  });
}

void batch_norm_backward_parameters(Cpu, const BatchNormState& state, const Tensor& dy, const Tensor& g,
                                    const Tensor& d_gamma, const Tensor& d_beta) {
  const Walk walk(state.x);
  const Sums sums(walk);  // Σ g and Σ g · (x - mean)
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    const Lanes<C> lanes(walk, state);
    const bool by_y = state.y.defined(), instructions = detail::fits_norm_avx512(walk.channels);
    const Streams<T> all{state.x.data<T>(), dy.data<T>(), by_y ? state.y.data<T>() : nullptr, g.data<T>()};
    auto run = [&]<Mask mask>() {
      vector_for(walk.blocks, 1, [&](int64_t begin, int64_t end) GODWIT_INLINE {
        LineVector<C> sum(walk.lanes), product(walk.lanes);
        for (int64_t b = end; b-- > begin;)
          for (int64_t at = b * walk.block, stop = walk.end_of(b); at < stop; at += walk.run) {
            std::fill(sum.begin(), sum.end(), C(0));
            std::fill(product.begin(), product.end(), C(0));
            const Streams<T> here{all.x + at, all.dy + at, by_y ? all.y + at : nullptr, all.g + at};
            const int64_t n = std::min(walk.run, stop - at);
            if (!instructions || !by_instruction(here, n, walk.lanes, lanes, mask, sum.data(), product.data()))
              add_products<mask>(here, n, walk.lanes, lanes, sum.data(), product.data());
            walk.fold(sum.data(), sums.first_of(b));
            walk.fold(product.data(), sums.second_of(b));
          }
      });
    };
    switch (mask_of(state)) {
      case Mask::none:
        run.template operator()<Mask::none>();
        break;
      case Mask::recomputed:
        run.template operator()<Mask::recomputed>();
        break;
      case Mask::output:
        run.template operator()<Mask::output>();
        break;
    }
    const double *sum = sums.total_first(), *product = sums.total_second();
    for (int64_t c = 0; c < walk.channels; ++c) {
      d_beta.data<C>()[c] = static_cast<C>(sum[c]);
      d_gamma.data<C>()[c] = static_cast<C>(product[c] * state.inv_std.item(c));
    }
  });
}

void batch_norm_backward_input(Cpu, const BatchNormState& state, const Tensor& dy, bool training, const Tensor& d_gamma,
                               const Tensor& d_beta, const Tensor& dx) {
  const Walk walk(state.x);
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    const Lanes<C> lanes(walk, state);
    std::vector<double> by_channel(walk.channels);
    LineVector<C> offset(walk.lanes), slope(walk.lanes);
    if (training) {
      const auto rows = static_cast<double>(walk.rows);
      for (int64_t c = 0; c < walk.channels; ++c) by_channel[c] = d_beta.item(c) / rows;
      walk.spread(by_channel.data(), offset.data());
      for (int64_t c = 0; c < walk.channels; ++c) by_channel[c] = d_gamma.item(c) * state.inv_std.item(c) / rows;
      walk.spread(by_channel.data(), slope.data());
    }
    const T *x = state.x.data<T>(), *g = dy.data<T>();
    T* out = dx.data<T>();
    if constexpr (std::is_same_v<T, bf16>)
      if (detail::fits_norm_avx512(walk.channels)) {
        const detail::NormPass pass{
            x,           g, out, walk.lanes, lanes.mean.data(), lanes.scale.data(), lanes.beta.data(), offset.data(),
            slope.data()};
        return parallel_for(walk.blocks, 1, [&](int64_t begin, int64_t end) {
          detail::input_gradient_avx512(pass, mask_of(state) == Mask::recomputed, begin * walk.block,
                                        std::min(walk.numel, end * walk.block));
        });
      }
    dispatch_bool(mask_of(state) == Mask::recomputed, [&]<bool relu>() {
      vector_for(walk.blocks, 1, [&](int64_t begin, int64_t end) GODWIT_INLINE {
        const int64_t stop = std::min(walk.numel, end * walk.block);
        for (int64_t at = begin * walk.block; at < stop; at += walk.lanes)
          input_gradient<relu>(x + at, g + at, std::min(walk.lanes, stop - at), lanes, offset.data(), slope.data(),
                               out + at);
      });
    });
  });
}

}  // namespace godwit
