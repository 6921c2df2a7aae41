#include <cmath>

#include "autograd/ops/normalization/layer_norm.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// One block per row; a thread reads back only values that it wrote.
template <class T>
__global__ void layer_norm_forward_kernel(uint32_t width, bool packed, const T* x, const T* residual,
                                          const compute_t<T>* gamma, const compute_t<T>* beta, compute_t<T> eps, T* sum,
                                          T* y, compute_t<T>* mean, compute_t<T>* inv_std) {
  using C = compute_t<T>;
  const int64_t row = blockIdx.x, first = row * width;
  const C share = C(1) / static_cast<C>(width);
  const T* from = x + first;
  C total = 0;
  if (residual) {
    from = sum + first;
    for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
      const auto a = load_pack<n>(x + first + c, 0), b = load_pack<n>(residual + first + c, 0);
      Pack<T, n> added;
      for (int k = 0; k < n; ++k) {
        added.values[k] = static_cast<T>(C(a.values[k]) + C(b.values[k]));
        total += C(added.values[k]);
      }
      store_pack(sum + first + c, added);
    });
  } else {
    for_row(from, width, packed, [&]<int n>(uint32_t c) {
      const auto values = load_pack<n>(from + c, 0);
      for (int k = 0; k < n; ++k) total += C(values.values[k]);
    });
  }
  const C m = block_reduce(total, Plus()) * share;
  C squares = 0;
  for_row(from, width, packed, [&]<int n>(uint32_t c) {
    const auto values = load_pack<n>(from + c, 0);
    for (int k = 0; k < n; ++k) squares += (C(values.values[k]) - m) * (C(values.values[k]) - m);
  });
  const C inv = 1 / std::sqrt(block_reduce(squares, Plus()) * share + eps);
  for_row(from, width, packed, [&]<int n>(uint32_t c) {
    const auto values = load_pack<n>(from + c, 0);
    const auto scale = load_any<n>(gamma + c), offset = load_any<n>(beta + c);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k)
      to.values[k] = static_cast<T>((C(values.values[k]) - m) * inv * scale.values[k] + offset.values[k]);
    store_pack(y + first + c, to);
  });
  if (threadIdx.x == 0) {
    mean[row] = m;
    inv_std[row] = inv;
  }
}

template <class T>
__global__ void layer_norm_backward_kernel(uint32_t width, bool packed, const T* x, const compute_t<T>* gamma,
                                           const compute_t<T>* mean, const compute_t<T>* inv_std, const T* dy, T* dx) {
  using C = compute_t<T>;
  const int64_t row = blockIdx.x, first = row * width;
  const C m = mean[row], inv = inv_std[row], share = C(1) / static_cast<C>(width);
  C of_g = 0, of_product = 0;
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0), grad = load_pack<n>(dy + first + c, 0);
    const auto scale = load_any<n>(gamma + c);
    for (int k = 0; k < n; ++k) {
      const C g = C(grad.values[k]) * scale.values[k];
      of_g += g;
      of_product += g * ((C(in.values[k]) - m) * inv);
    }
  });
  const C offset = block_reduce(of_g, Plus()) * share, tilt = block_reduce(of_product, Plus()) * share;
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0), grad = load_pack<n>(dy + first + c, 0);
    const auto scale = load_any<n>(gamma + c);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) {
      const C g = C(grad.values[k]) * scale.values[k], x_hat = (C(in.values[k]) - m) * inv;
      to.values[k] = static_cast<T>(inv * (g - offset - x_hat * tilt));
    }
    store_pack(dx + first + c, to);
  });
}

// The gradients of gamma and beta.
template <class T>
struct LayerNormGradients {
  static constexpr int kSums = 2;
  const T *x, *dy;
  const compute_t<T>*mean, *inv_std;
  int64_t width;
  template <int n>
  __device__ void operator()(int64_t row, int64_t c, double (&sums)[kSums][n]) const {
    using C = compute_t<T>;
    const auto in = load_pack<n>(x + row * width + c, 0), grad = load_pack<n>(dy + row * width + c, 0);
    const C m = mean[row], inv = inv_std[row];
    for (int k = 0; k < n; ++k) {
      const C g = C(grad.values[k]);
      sums[0][k] += static_cast<double>(g * ((C(in.values[k]) - m) * inv));
      sums[1][k] += static_cast<double>(g);
    }
  }
};

}  // namespace

void layer_norm_forward(Cuda device, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std) {
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.cuda_data<T>(), *plus = residual.defined() ? residual.cuda_data<T>() : nullptr;
    T *added = sum.cuda_data<T>(), *to = y.cuda_data<T>();
    const bool packed = aligned_alike(in, to) && (plus == nullptr || aligned_alike(in, plus, added));
    launch(device, "layer_norm", layer_norm_forward_kernel<T>, x.dim(0), row_threads(x.dim(1) / kPack<T>),
           index_count("layer_norm", x.dim(1)), packed, in, plus, gamma.cuda_data<C>(), beta.cuda_data<C>(), eps, added,
           to, mean.cuda_data<C>(), inv_std.cuda_data<C>());
  });
}

// Computes the parameters' gradients before writing dx, because dx may be dy.
void layer_norm_backward(Cuda device, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta) {
  const int64_t n = x.dim(0), width = x.dim(1);
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.cuda_data<T>(), *from = dy.cuda_data<T>();
    T* to = dx.cuda_data<T>();
    const C *means = mean.cuda_data<C>(), *inv_stds = inv_std.cuda_data<C>();
    column_sums<T, LayerNormGradients<T>, C>(device, "layer_norm", n, width,
                                             LayerNormGradients<T>{in, from, means, inv_stds, width},
                                             {d_gamma.cuda_data<C>(), d_beta.cuda_data<C>()}, {in, from});
    launch(device, "layer_norm", layer_norm_backward_kernel<T>, n, row_threads(width / kPack<T>),
           index_count("layer_norm", width), aligned_alike(in, from, to), in, gamma.cuda_data<C>(), means, inv_stds,
           from, to);
  });
}

}  // namespace godwit
