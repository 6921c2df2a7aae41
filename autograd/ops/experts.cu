#include "autograd/ops/experts.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

// One thread per token.
template <class T>
__global__ void weights_kernel(int64_t n, int64_t experts, int64_t k, const T* p, const int32_t* ids, T* to) {
  for (int64_t t = grid_thread(); t < n; t += grid_threads()) {
    compute_t<T> sum = 0;
    for (int64_t s = t * k; s < (t + 1) * k; ++s) sum += compute_t<T>(p[t * experts + ids[s]]);
    for (int64_t s = t * k; s < (t + 1) * k; ++s) to[s] = static_cast<T>(compute_t<T>(p[t * experts + ids[s]]) / sum);
  }
}

template <class T>
__global__ void d_weights_kernel(int64_t n, int64_t experts, int64_t k, const T* p, const int32_t* ids, const T* dy,
                                 T* to) {
  using C = compute_t<T>;
  for (int64_t t = grid_thread(); t < n; t += grid_threads()) {
    C sum = 0, product = 0;
    for (int64_t s = t * k; s < (t + 1) * k; ++s) {
      sum += C(p[t * experts + ids[s]]);
      product += C(p[t * experts + ids[s]]) * C(dy[s]);
    }
    for (int64_t e = 0; e < experts; ++e) to[t * experts + e] = static_cast<T>(C(0));
    for (int64_t s = t * k; s < (t + 1) * k; ++s)
      to[t * experts + ids[s]] = static_cast<T>((C(dy[s]) - product / sum) / sum);
  }
}

// One block per token.
template <class T>
__global__ void combine_kernel(int64_t width, int64_t k, const T* x, const compute_t<T>* weights, const int32_t* slots,
                               T* y) {
  const int64_t t = blockIdx.x;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    compute_t<T> sum = 0;
    for (int64_t s = t * k; s < (t + 1) * k; ++s) sum += weights[s] * compute_t<T>(x[slots[s] * width + c]);
    y[t * width + c] = static_cast<T>(sum);
  }
}

// One block per row of x.
template <class T>
__global__ void d_combine_kernel(int64_t width, int64_t k, const T* x, const compute_t<T>* weights,
                                 const int32_t* slots, const T* dy, T* dx, compute_t<T>* d_weights) {
  using C = compute_t<T>;
  const int64_t s = blockIdx.x, row = slots[s] * width, token = s / k * width;
  C sum = 0;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    const C g = C(dy[token + c]);
    sum += g * C(x[row + c]);
    dx[row + c] = static_cast<T>(weights[s] * g);
  }
  sum = block_reduce(sum, Plus());
  if (threadIdx.x == 0) d_weights[s] = sum;
}

}  // namespace

void expert_weights_forward(Cuda device, const Tensor& probabilities, const Tensor& ids, const Tensor& weights) {
  dispatch_float(probabilities.dtype(), "expert_weights", [&]<class T>() {
    launch(device, "expert_weights", weights_kernel<T>, blocks_for(device, ids.dim(0)), kBlock, ids.dim(0),
           probabilities.dim(1), ids.dim(1), probabilities.cuda_data<T>(), ids.cuda_data<int32_t>(),
           weights.cuda_data<T>());
  });
}

void expert_weights_backward(Cuda device, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities) {
  dispatch_float(probabilities.dtype(), "expert_weights", [&]<class T>() {
    launch(device, "expert_weights", d_weights_kernel<T>, blocks_for(device, ids.dim(0)), kBlock, ids.dim(0),
           probabilities.dim(1), ids.dim(1), probabilities.cuda_data<T>(), ids.cuda_data<int32_t>(), dy.cuda_data<T>(),
           d_probabilities.cuda_data<T>());
  });
}

void combine_experts_forward(Cuda device, const Tensor& x, const Tensor& weights, const Tensor& slots,
                             const Tensor& y) {
  dispatch_float(x.dtype(), "combine_experts", [&]<class T>() {
    launch(device, "combine_experts", combine_kernel<T>, y.dim(0), row_threads(x.dim(1)), x.dim(1), slots.dim(1),
           x.cuda_data<T>(), weights.cuda_data<compute_t<T>>(), slots.cuda_data<int32_t>(), y.cuda_data<T>());
  });
}

void combine_experts_backward(Cuda device, const Tensor& x, const Tensor& weights, const Tensor& slots,
                              const Tensor& dy, const Tensor& dx, const Tensor& d_weights) {
  dispatch_float(x.dtype(), "combine_experts", [&]<class T>() {
    using C = compute_t<T>;
    launch(device, "combine_experts", d_combine_kernel<T>, slots.numel(), row_threads(x.dim(1)), x.dim(1), slots.dim(1),
           x.cuda_data<T>(), weights.cuda_data<C>(), slots.cuda_data<int32_t>(), dy.cuda_data<T>(), dx.cuda_data<T>(),
           d_weights.cuda_data<C>());
  });
}

}  // namespace godwit
