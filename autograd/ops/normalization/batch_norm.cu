#include <cmath>

#include "autograd/ops/normalization/batch_norm.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// Split of [rows, channels] into blocks: chunks of rows, tiles of channels. `lanes` adjacent threads of a block each
// have a pack of n channels and process every row_lanes-th row. The split depends only on the shape and the pack width.
struct Tiling {
  int64_t rows, channels, packs, lanes, row_lanes, tiles, chunk, chunks;

  Tiling(const Tensor& x, int64_t n) : rows(0), channels(x.dim(x.shape().rank() - 1)) {
    constexpr int64_t kBlocks = 1024, kLanes = 32;
    const int64_t wide = std::max<int64_t>(channels, 1);
    rows = x.numel() / wide;
    packs = wide / n;
    lanes = std::min(packs, kLanes);
    row_lanes = kBlock / lanes;
    tiles = (packs + lanes - 1) / lanes;
    const int64_t wanted = std::max<int64_t>(1, kBlocks / tiles);
    chunk = std::max((rows + wanted - 1) / wanted, 4 * row_lanes);
    chunks = channels > 0 ? (rows + chunk - 1) / chunk : 0;
  }
  int64_t blocks() const { return tiles * chunks; }
};

// The channels and rows of a thread; none if begin == end.
struct Strip {
  int64_t channel, begin, end;
  __device__ Strip(const Tiling& t, int n) {
    const auto lanes = static_cast<uint32_t>(t.lanes), tiles = static_cast<uint32_t>(t.tiles);
    const uint32_t down = threadIdx.x / lanes, lane = threadIdx.x - down * lanes;
    const int64_t pack = blockIdx.x % tiles * lanes + lane;
    const int64_t first = blockIdx.x / tiles * t.chunk, last = first + t.chunk;
    channel = pack * n;
    end = last < t.rows ? last : t.rows;
    begin = down < t.row_lanes && pack < t.packs ? first + down : end;
  }
};

// Calls f.operator()<u>(at, step) for a thread's rows, in order: u packs of memory, at `at` and at multiples of `step`
// after `at`. f loads all u packs before it uses one, so that `deep` loads per array are in flight.
template <int deep, class F>
__device__ void for_rows(const Strip& strip, const Tiling& t, F f) {
  const int64_t step = t.row_lanes * t.channels;
  int64_t row = strip.begin;
  for (; row + (deep - 1) * t.row_lanes < strip.end; row += deep * t.row_lanes)
    f.template operator()<deep>(row * t.channels + strip.channel, step);
  for (; row < strip.end; row += t.row_lanes) f.template operator()<1>(row * t.channels + strip.channel, step);
}

template <int n, int u, class T>
struct Packs {
  Pack<T, n> packs[u];
  __device__ Packs(const T* from, int64_t at, int64_t step) {
    for (int i = 0; i < u; ++i) packs[i] = load_pack<n>(from + at + i * step, 0);
  }
  __device__ Packs() : packs{} {}
  __device__ const Pack<T, n>& operator[](int i) const { return packs[i]; }
};

// Parameters [channels], as passed to kernels.
template <class C>
struct Norm {
  const C *mean, *inv_std, *gamma, *beta;

  explicit Norm(const BatchNormState& state)
      : mean(state.mean.cuda_data<C>()),
        inv_std(state.inv_std.cuda_data<C>()),
        gamma(state.gamma.cuda_data<C>()),
        beta(state.beta.cuda_data<C>()) {}
};

// Parameters of a thread's n channels.
template <int n, class C>
struct Channels {
  C mean[n], scale[n], beta[n];

  __device__ Channels(const Norm<C>& norm, int64_t channel) {
    for (int k = 0; k < n; ++k) {
      mean[k] = norm.mean[channel + k];
      scale[k] = norm.gamma[channel + k] * norm.inv_std[channel + k];
      beta[k] = norm.beta[channel + k];
    }
  }
  // A single rounding, so that backward recomputes the same sign.
  __device__ C normalized(int k, C centered) const { return std::fma(centered, scale[k], beta[k]); }
};

// Two sums over the rows for each channel, in float64 and in a fixed order: a thread's rows, a block's threads, the
// blocks. `Term` creates the run<n> of a thread's channels; its add<u> is the f of for_rows().
template <int n, class Term>
__global__ void batch_norm_sums_kernel(Tiling t, Term term, double* partial) {
  __shared__ double sums[2 * n][kBlock];  // in this order, so that a warp uses all banks
  double of_thread[2 * n] = {};
  const Strip strip(t, n);
  if (strip.begin < strip.end) {
    const auto run = term.template run<n>(strip.channel);
    for_rows<Term::kDeep>(
        strip, t, [&]<int u>(int64_t at, int64_t step) { run.template add<u>(at, step, of_thread, of_thread + n); });
  }
  for (int k = 0; k < 2 * n; ++k) sums[k][threadIdx.x] = of_thread[k];
  __syncthreads();
  const auto lanes = static_cast<int>(t.lanes), row_lanes = static_cast<int>(t.row_lanes);
  for (int i = static_cast<int>(threadIdx.x); i < lanes * 2 * n; i += kBlock) {
    const int k = i / lanes, lane = i - k * lanes;
    const int64_t pack = blockIdx.x % static_cast<uint32_t>(t.tiles) * lanes + lane;
    double total = 0;
    for (int down = 0; down < row_lanes; ++down) total += sums[k][down * lanes + lane];
    if (pack < t.packs)
      partial[(blockIdx.x / static_cast<uint32_t>(t.tiles) * 2 + k / n) * t.channels + pack * n + k % n] = total;
  }
}

// One block per channel; `finish` receives both sums.
template <class Finish>
__global__ void batch_norm_totals_kernel(const double* partial, int64_t chunks, int64_t channels, Finish finish) {
  double first = 0, second = 0;
  for (int64_t chunk = threadIdx.x; chunk < chunks; chunk += blockDim.x) {
    first += partial[2 * chunk * channels + blockIdx.x];
    second += partial[(2 * chunk + 1) * channels + blockIdx.x];
  }
  first = block_reduce(first, Plus());
  second = block_reduce(second, Plus());
  if (threadIdx.x == 0) finish(blockIdx.x, first, second);
}

template <int n, class Term, class Finish>
void channel_sums(Cuda device, const Tensor& x, Term term, Finish finish) {
  const Tiling t(x, n);
  const Tensor partial({t.chunks, 2, t.channels}, DType::f64, x.device());
  launch(device, "batch_norm", batch_norm_sums_kernel<n, Term>, t.blocks(), kBlock, t, term,
         partial.cuda_data<double>());
  launch(device, "batch_norm", batch_norm_totals_kernel<Finish>, t.channels, row_threads(t.chunks),
         partial.cuda_data<double>(), t.chunks, t.channels, finish);
}

// Σ (x - x₀) and Σ (x - x₀)², where x₀ is the first row.
template <class T>
struct Squares {
  static constexpr int kDeep = 4;
  const T* x;

  template <int n>
  struct Run {
    const T* x;
    double center[n];
    template <int u>
    __device__ void add(int64_t at, int64_t step, double* sums, double* squares) const {
      const Packs<n, u, T> in(x, at, step);
      for (int i = 0; i < u; ++i)
        for (int k = 0; k < n; ++k) {
          const double d = static_cast<double>(compute_t<T>(in[i].values[k])) - center[k];
          sums[k] += d;
          squares[k] += d * d;
        }
    }
  };
  template <int n>
  __device__ Run<n> run(int64_t channel) const {
    Run<n> result{x, {}};
    for (int k = 0; k < n; ++k) result.center[k] = static_cast<double>(compute_t<T>(x[channel + k]));
    return result;
  }
};

template <class T>
struct Moments {
  const T* x;
  double rows;
  double *mean, *variance;
  __device__ void operator()(int64_t c, double sum, double squares) const {
    if (rows == 0) return;
    const double apart = sum / rows, v = squares / rows - apart * apart;
    mean[c] = static_cast<double>(compute_t<T>(x[c])) + apart;
    variance[c] = v < 0 ? 0 : v;
  }
};

// running = (1 - momentum) · running + momentum · batch, with the unbiased variance
template <class C>
__global__ void batch_norm_finalize_kernel(int64_t channels, const double* mean, const double* variance,
                                           double own_rows, const double* all_rows, double momentum, double eps,
                                           C* running_mean, C* running_var, C* to_mean, C* to_inv_std) {
  const double rows = all_rows ? all_rows[0] : own_rows, unbiased = rows / (rows - 1);
  for (int64_t c = grid_thread(); c < channels; c += grid_threads()) {
    if (running_mean) running_mean[c] = static_cast<C>((1 - momentum) * double(running_mean[c]) + momentum * mean[c]);
    if (running_var)
      running_var[c] = static_cast<C>((1 - momentum) * double(running_var[c]) + momentum * unbiased * variance[c]);
    to_mean[c] = static_cast<C>(mean[c]);
    to_inv_std[c] = static_cast<C>(1 / std::sqrt(variance[c] + eps));
  }
}

template <int n, class T, class C = compute_t<T>>
__global__ void batch_norm_forward_kernel(Tiling t, Norm<C> norm, bool relu, const T* x, const T* residual, T* y) {
  const Strip strip(t, n);
  if (strip.begin >= strip.end) return;
  const Channels<n, C> channels(norm, strip.channel);
  for_rows<2>(strip, t, [&]<int u>(int64_t at, int64_t step) {
    const Packs<n, u, T> in(x, at, step), plus = residual ? Packs<n, u, T>(residual, at, step) : Packs<n, u, T>();
    for (int i = 0; i < u; ++i) {
      Pack<T, n> out;
      for (int k = 0; k < n; ++k) {
        C value = channels.normalized(k, C(in[i].values[k]) - channels.mean[k]);
        if (residual) value += C(plus[i].values[k]);
        out.values[k] = static_cast<T>(relu && value < 0 ? C(0) : value);
      }
      store_pack(y + at + i * step, out);
    }
  });
}

// Source of the ReLU mask in backward: no ReLU, recomputed from x, or the output y.
enum class Mask { none, recomputed, output };

Mask mask_of(const BatchNormState& state) {
  return !state.relu ? Mask::none : state.y.defined() ? Mask::output : Mask::recomputed;
}

// Σ g and Σ g · (x - mean), where g is dy after the ReLU mask. With Mask::output, g is written.
template <class T>
struct Products {
  using C = compute_t<T>;
  static constexpr int kDeep = 2;
  Norm<C> norm;
  Mask mask;
  const T *x, *dy, *y;
  T* g;

  template <int n>
  struct Run {
    const Products& p;
    Channels<n, C> channels;
    template <int u>
    __device__ void add(int64_t at, int64_t step, double* sums, double* products) const {
      const bool by_output = p.mask == Mask::output;
      const Packs<n, u, T> in(p.x, at, step), grad(p.dy, at, step),
          out = by_output ? Packs<n, u, T>(p.y, at, step) : Packs<n, u, T>();
      for (int i = 0; i < u; ++i) {
        Pack<T, n> kept;
        for (int k = 0; k < n; ++k) {
          const C d = C(in[i].values[k]) - channels.mean[k];
          const bool stopped = p.mask == Mask::none ? false
                               : by_output          ? C(out[i].values[k]) <= 0
                                                    : channels.normalized(k, d) <= 0;
          kept.values[k] = stopped ? T(0) : grad[i].values[k];
          const C passed = C(kept.values[k]);
          sums[k] += static_cast<double>(passed);
          products[k] += static_cast<double>(passed) * static_cast<double>(d);
        }
        if (by_output) store_pack(p.g + at + i * step, kept);
      }
    }
  };
  template <int n>
  __device__ Run<n> run(int64_t channel) const {
    return {*this, Channels<n, C>(norm, channel)};
  }
};

template <class C>
struct BatchNormGradients {
  const C* inv_std;
  C *d_gamma, *d_beta;
  __device__ void operator()(int64_t c, double sum, double product) const {
    d_beta[c] = static_cast<C>(sum);
    d_gamma[c] = static_cast<C>(product * static_cast<double>(inv_std[c]));
  }
};

// dx = scale · (g - offset - slope · (x - mean))
template <int n, class T, class C = compute_t<T>>
__global__ void batch_norm_input_kernel(Tiling t, Norm<C> norm, bool relu, const C* d_gamma, const C* d_beta,
                                        const T* x, const T* dy, T* dx) {
  const Strip strip(t, n);
  if (strip.begin >= strip.end) return;
  const Channels<n, C> channels(norm, strip.channel);
  const auto rows = static_cast<double>(t.rows);
  C offset[n] = {}, slope[n] = {};
  if (d_gamma)
    for (int k = 0; k < n; ++k) {
      const int64_t c = strip.channel + k;
      offset[k] = static_cast<C>(static_cast<double>(d_beta[c]) / rows);
      slope[k] = static_cast<C>(static_cast<double>(d_gamma[c]) * static_cast<double>(norm.inv_std[c]) / rows);
    }
  for_rows<2>(strip, t, [&]<int u>(int64_t at, int64_t step) {
    const Packs<n, u, T> in(x, at, step), from(dy, at, step);
    for (int i = 0; i < u; ++i) {
      Pack<T, n> out;
      for (int k = 0; k < n; ++k) {
        const C d = C(in[i].values[k]) - channels.mean[k];
        const C g = relu && channels.normalized(k, d) <= 0 ? C(0) : C(from[i].values[k]);
        out.values[k] = static_cast<T>(channels.scale[k] * (g - offset[k] - slope[k] * d));
      }
      store_pack(dx + at + i * step, out);
    }
  });
}

int64_t channels_of(const Tensor& x) { return x.dim(x.shape().rank() - 1); }

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.cuda_data<T>() : nullptr;
}

}  // namespace

void batch_norm_statistics(Cuda device, const Tensor& x, const Tensor& mean, const Tensor& variance) {
  dispatch_float(x.dtype(), "batch_norm", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    const int64_t channels = mean.numel();
    const Moments<T> moments{from, static_cast<double>(channels ? x.numel() / channels : 0), mean.cuda_data<double>(),
                             variance.cuda_data<double>()};
    by_packs<T>(
        channels, [&]<int n>() { channel_sums<n>(device, x, Squares<T>{from}, moments); }, from);
  });
}

void batch_norm_finalize(Cuda device, const Tensor& mean, const Tensor& variance, double rows, const Tensor& all_rows,
                         const BatchNormOptions& options, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormState& state) {
  dispatch_real(state.mean.dtype(), "batch_norm", [&]<class C>() {
    launch(device, "batch_norm", batch_norm_finalize_kernel<C>, blocks_for(device, mean.numel()), kBlock, mean.numel(),
           mean.cuda_data<double>(), variance.cuda_data<double>(), rows, data_or_null<double>(all_rows),
           options.momentum, options.eps, data_or_null<C>(running_mean), data_or_null<C>(running_var),
           state.mean.cuda_data<C>(), state.inv_std.cuda_data<C>());
  });
}

void batch_norm_forward(Cuda device, const BatchNormState& state, const Tensor& residual, const Tensor& y) {
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    const T *x = state.x.cuda_data<T>(), *plus = data_or_null<T>(residual);
    T* to = y.cuda_data<T>();
    const Norm<compute_t<T>> norm(state);
    const auto run = [&]<int n>() {
      const Tiling t(state.x, n);
      launch(device, "batch_norm", batch_norm_forward_kernel<n, T>, t.blocks(), kBlock, t, norm, state.relu, x, plus,
             to);
    };
    by_packs<T>(channels_of(state.x), run, x, plus, to);
  });
}

void batch_norm_backward_parameters(Cuda device, const BatchNormState& state, const Tensor& dy, const Tensor& g,
                                    const Tensor& d_gamma, const Tensor& d_beta) {
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    const Products<T> products{Norm<C>(state),    mask_of(state),           state.x.cuda_data<T>(),
                               dy.cuda_data<T>(), data_or_null<T>(state.y), g.cuda_data<T>()};
    const BatchNormGradients<C> finish{state.inv_std.cuda_data<C>(), d_gamma.cuda_data<C>(), d_beta.cuda_data<C>()};
    by_packs<T>(
        channels_of(state.x), [&]<int n>() { channel_sums<n>(device, state.x, products, finish); }, products.x,
        products.dy, products.y, products.g);
  });
}

void batch_norm_backward_input(Cuda device, const BatchNormState& state, const Tensor& dy, bool training,
                               const Tensor& d_gamma, const Tensor& d_beta, const Tensor& dx) {
  dispatch_float(state.x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *x = state.x.cuda_data<T>(), *from = dy.cuda_data<T>();
    T* to = dx.cuda_data<T>();
    const Norm<C> norm(state);
    const C *of_gamma = training ? d_gamma.cuda_data<C>() : nullptr,
            *of_beta = training ? d_beta.cuda_data<C>() : nullptr;
    const auto run = [&]<int n>() {
      const Tiling t(state.x, n);
      launch(device, "batch_norm", batch_norm_input_kernel<n, T>, t.blocks(), kBlock, t, norm,
             mask_of(state) == Mask::recomputed, of_gamma, of_beta, x, from, to);
    };
    by_packs<T>(channels_of(state.x), run, x, from, to);
  });
}

}  // namespace godwit
