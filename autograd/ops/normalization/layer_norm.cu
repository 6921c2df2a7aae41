#include <cmath>

#include "autograd/ops/normalization/layer_norm.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

// One block per row; a thread reads back only values that it wrote.
template <class T>
__global__ void forward_kernel(int64_t width, const T* x, const T* residual, const compute_t<T>* gamma,
                               const compute_t<T>* beta, compute_t<T> eps, T* sum, T* y, compute_t<T>* mean,
                               compute_t<T>* inv_std) {
  using C = compute_t<T>;
  const int64_t row = blockIdx.x, first = row * width;
  const C share = C(1) / static_cast<C>(width);
  const T* from = x + first;
  if (residual) {
    for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
      sum[first + c] = static_cast<T>(C(x[first + c]) + C(residual[first + c]));
    from = sum + first;
  }
  C total = 0;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) total += C(from[c]);
  const C m = block_reduce(total, Plus()) * share;
  C squares = 0;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) squares += (C(from[c]) - m) * (C(from[c]) - m);
  const C inv = 1 / std::sqrt(block_reduce(squares, Plus()) * share + eps);
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
    y[first + c] = static_cast<T>((C(from[c]) - m) * inv * gamma[c] + beta[c]);
  if (threadIdx.x == 0) {
    mean[row] = m;
    inv_std[row] = inv;
  }
}

template <class T>
__global__ void backward_kernel(int64_t width, const T* x, const compute_t<T>* gamma, const compute_t<T>* mean,
                                const compute_t<T>* inv_std, const T* dy, T* dx) {
  using C = compute_t<T>;
  const int64_t row = blockIdx.x, first = row * width;
  const C m = mean[row], inv = inv_std[row], share = C(1) / static_cast<C>(width);
  C of_g = 0, of_product = 0;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    const C g = C(dy[first + c]) * gamma[c];
    of_g += g;
    of_product += g * ((C(x[first + c]) - m) * inv);
  }
  const C offset = block_reduce(of_g, Plus()) * share, slope = block_reduce(of_product, Plus()) * share;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    const C g = C(dy[first + c]) * gamma[c], x_hat = (C(x[first + c]) - m) * inv;
    dx[first + c] = static_cast<T>(inv * (g - offset - x_hat * slope));
  }
}

template <class T>
struct OfBeta {
  const T* dy;
  int64_t width;
  __device__ compute_t<T> operator()(int64_t row, int64_t c) const { return dy[row * width + c]; }
};

template <class T>
struct OfGamma {
  const T *x, *dy;
  const compute_t<T>*mean, *inv_std;
  int64_t width;
  __device__ compute_t<T> operator()(int64_t row, int64_t c) const {
    using C = compute_t<T>;
    return C(dy[row * width + c]) * ((C(x[row * width + c]) - mean[row]) * inv_std[row]);
  }
};

}  // namespace

void layer_norm_forward(Cuda device, const Tensor& x, const Tensor& residual, const Tensor& gamma, const Tensor& beta,
                        double eps, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& inv_std) {
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    launch(device, "layer_norm", forward_kernel<T>, x.dim(0), row_threads(x.dim(1)), x.dim(1), x.cuda_data<T>(),
           residual.defined() ? residual.cuda_data<T>() : nullptr, gamma.cuda_data<C>(), beta.cuda_data<C>(), eps,
           sum.cuda_data<T>(), y.cuda_data<T>(), mean.cuda_data<C>(), inv_std.cuda_data<C>());
  });
}

// Computes the parameters' gradients before writing dx, because dx may be dy.
void layer_norm_backward(Cuda device, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& dy, const Tensor& dx, const Tensor& d_gamma, const Tensor& d_beta) {
  const int64_t n = x.dim(0), width = x.dim(1);
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.cuda_data<T>(), *from = dy.cuda_data<T>();
    const C *means = mean.cuda_data<C>(), *inv_stds = inv_std.cuda_data<C>();
    column_sums(device, "layer_norm", n, width, OfGamma<T>{in, from, means, inv_stds, width}, d_gamma.cuda_data<C>());
    column_sums(device, "layer_norm", n, width, OfBeta<T>{from, width}, d_beta.cuda_data<C>());
    launch(device, "layer_norm", backward_kernel<T>, n, row_threads(width), width, in, gamma.cuda_data<C>(), means,
           inv_stds, from, dx.cuda_data<T>());
  });
}

}  // namespace godwit
