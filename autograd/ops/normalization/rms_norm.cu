#include <cmath>

#include "autograd/ops/normalization/rms_norm.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

// One block per row.
template <class T>
__global__ void forward_kernel(int64_t width, const T* x, const compute_t<T>* gamma, compute_t<T> eps, T* y,
                               compute_t<T>* inv_rms) {
  using C = compute_t<T>;
  const int64_t first = blockIdx.x * width;
  C squares = 0;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) squares += C(x[first + c]) * C(x[first + c]);
  const C inv = 1 / std::sqrt(block_reduce(squares, Plus()) * (C(1) / static_cast<C>(width)) + eps);
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
    y[first + c] = static_cast<T>(C(x[first + c]) * inv * gamma[c]);
  if (threadIdx.x == 0) inv_rms[blockIdx.x] = inv;
}

template <class T>
__global__ void backward_kernel(int64_t width, const T* x, const compute_t<T>* gamma, const compute_t<T>* inv_rms,
                                const T* dy, T* dx) {
  using C = compute_t<T>;
  const int64_t first = blockIdx.x * width;
  const C inv = inv_rms[blockIdx.x];
  C product = 0;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
    product += C(dy[first + c]) * gamma[c] * (C(x[first + c]) * inv);
  const C slope = inv * (C(1) / static_cast<C>(width)) * block_reduce(product, Plus());
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
    dx[first + c] = static_cast<T>(inv * (C(dy[first + c]) * gamma[c]) - C(x[first + c]) * inv * slope);
}

template <class T>
struct OfGamma {
  const T *x, *dy;
  const compute_t<T>* inv_rms;
  int64_t width;
  __device__ compute_t<T> operator()(int64_t row, int64_t c) const {
    using C = compute_t<T>;
    return C(dy[row * width + c]) * (C(x[row * width + c]) * inv_rms[row]);
  }
};

}  // namespace

void rms_norm_forward(Cuda device, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y,
                      const Tensor& inv_rms) {
  dispatch_float(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_t<T>;
    launch(device, "rms_norm", forward_kernel<T>, x.dim(0), row_threads(x.dim(1)), x.dim(1), x.cuda_data<T>(),
           gamma.cuda_data<C>(), eps, y.cuda_data<T>(), inv_rms.cuda_data<C>());
  });
}

// Computes the gradient of gamma before writing dx, because dx may be dy.
void rms_norm_backward(Cuda device, const Tensor& x, const Tensor& gamma, const Tensor& inv_rms, const Tensor& dy,
                       const Tensor& dx, const Tensor& d_gamma) {
  const int64_t n = x.dim(0), width = x.dim(1);
  dispatch_float(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.cuda_data<T>(), *from = dy.cuda_data<T>();
    const C* inverses = inv_rms.cuda_data<C>();
    column_sums(device, "rms_norm", n, width, OfGamma<T>{in, from, inverses, width}, d_gamma.cuda_data<C>());
    launch(device, "rms_norm", backward_kernel<T>, n, row_threads(width), width, in, gamma.cuda_data<C>(), inverses,
           from, dx.cuda_data<T>());
  });
}

}  // namespace godwit
