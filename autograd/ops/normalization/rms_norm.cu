#include <cmath>

#include "autograd/ops/normalization/rms_norm.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// One block per row.
template <class T, class C = compute_t<T>>
__global__ void rms_norm_forward_kernel(uint32_t width, bool packed, const T* x, const C* gamma, C eps, T* y,
                                        C* inv_rms) {
  const int64_t row = blockIdx.x, first = row * width;
  C squares = 0;
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0);
    for (int k = 0; k < n; ++k) squares += C(in.values[k]) * C(in.values[k]);
  });
  const C inv = 1 / std::sqrt(block_reduce(squares, Plus()) * (C(1) / static_cast<C>(width)) + eps);
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0);
    const auto scale = load_any<n>(gamma + c);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) to.values[k] = static_cast<T>(C(in.values[k]) * inv * scale.values[k]);
    store_pack(y + first + c, to);
  });
  if (threadIdx.x == 0) inv_rms[row] = inv;
}

template <class T, class C = compute_t<T>>
__global__ void rms_norm_backward_kernel(uint32_t width, bool packed, const T* x, const C* gamma, const C* inv_rms,
                                         const T* dy, T* dx) {
  const int64_t row = blockIdx.x, first = row * width;
  const C inv = inv_rms[row];
  C product = 0;
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0), grad = load_pack<n>(dy + first + c, 0);
    const auto scale = load_any<n>(gamma + c);
    for (int k = 0; k < n; ++k) product += C(grad.values[k]) * scale.values[k] * (C(in.values[k]) * inv);
  });
  const C tilt = inv * (C(1) / static_cast<C>(width)) * block_reduce(product, Plus());
  for_row(x + first, width, packed, [&]<int n>(uint32_t c) {
    const auto in = load_pack<n>(x + first + c, 0), grad = load_pack<n>(dy + first + c, 0);
    const auto scale = load_any<n>(gamma + c);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k)
      to.values[k] = static_cast<T>(inv * (C(grad.values[k]) * scale.values[k]) - C(in.values[k]) * inv * tilt);
    store_pack(dx + first + c, to);
  });
}

template <class T>
struct GammaGradient {
  static constexpr int kSums = 1;
  const T *x, *dy;
  const compute_t<T>* inv_rms;
  int64_t width;
  template <int n>
  __device__ void operator()(int64_t row, int64_t c, double (&sums)[1][n]) const {
    using C = compute_t<T>;
    const auto in = load_pack<n>(x + row * width + c, 0), grad = load_pack<n>(dy + row * width + c, 0);
    const C inv = inv_rms[row];
    for (int k = 0; k < n; ++k) sums[0][k] += static_cast<double>(C(grad.values[k]) * (C(in.values[k]) * inv));
  }
};

}  // namespace

void rms_norm_forward(Cuda device, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y,
                      const Tensor& inv_rms) {
  dispatch_float(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T* in = x.cuda_data<T>();
    T* to = y.cuda_data<T>();
    launch(device, "rms_norm", rms_norm_forward_kernel<T>, x.dim(0), row_threads(x.dim(1) / kPack<T>),
           index_count("rms_norm", x.dim(1)), aligned_alike(in, to), in, gamma.cuda_data<C>(), eps, to,
           inv_rms.cuda_data<C>());
  });
}

// Computes the gradient of gamma before writing dx, because dx may be dy.
void rms_norm_backward(Cuda device, const Tensor& x, const Tensor& gamma, const Tensor& inv_rms, const Tensor& dy,
                       const Tensor& dx, const Tensor& d_gamma) {
  const int64_t n = x.dim(0), width = x.dim(1);
  dispatch_float(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.cuda_data<T>(), *from = dy.cuda_data<T>();
    T* to = dx.cuda_data<T>();
    const C* inverses = inv_rms.cuda_data<C>();
    column_sums<T, GammaGradient<T>, C>(device, "rms_norm", n, width, {in, from, inverses, width},
                                        {d_gamma.cuda_data<C>()}, {in, from});
    launch(device, "rms_norm", rms_norm_backward_kernel<T>, n, row_threads(width / kPack<T>),
           index_count("rms_norm", width), aligned_alike(in, from, to), in, gamma.cuda_data<C>(), inverses, from, to);
  });
}

}  // namespace godwit
