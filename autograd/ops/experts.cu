#include "autograd/ops/experts.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// One thread per token.
template <class T>
__global__ void expert_weights_kernel(int64_t n, int64_t experts, int64_t k, const T* p, const int32_t* ids, T* to) {
  for (int64_t t = grid_thread(); t < n; t += grid_threads()) {
    compute_t<T> sum = 0;
    for (int64_t s = t * k; s < (t + 1) * k; ++s) sum += compute_t<T>(p[t * experts + ids[s]]);
    for (int64_t s = t * k; s < (t + 1) * k; ++s) to[s] = static_cast<T>(compute_t<T>(p[t * experts + ids[s]]) / sum);
  }
}

template <class T>
__global__ void expert_d_weights_kernel(int64_t n, int64_t experts, int64_t k, const T* p, const int32_t* ids,
                                        const T* dy, T* to) {
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

// One block per token. Threads process n columns at a time.
template <int n, class T, class C = compute_t<T>>
__global__ void expert_combine_kernel(int64_t width, int64_t k, const T* x, const C* weights, const int32_t* slots,
                                      T* y) {
  const int64_t t = blockIdx.x;
  for (int64_t c = threadIdx.x * n; c < width; c += blockDim.x * n) {
    C sums[n] = {};
    for (int64_t s = t * k; s < (t + 1) * k; ++s) {
      const auto in = load_pack<n>(x + slots[s] * width + c, 0);
      for (int i = 0; i < n; ++i) sums[i] += weights[s] * C(in.values[i]);
    }
    Pack<T, n> to;
    for (int i = 0; i < n; ++i) to.values[i] = static_cast<T>(sums[i]);
    store_pack(y + t * width + c, to);
  }
}

// One block per row of x. Threads process n columns at a time.
template <int n, class T, class C = compute_t<T>>
__global__ void expert_d_combine_kernel(int64_t width, int64_t k, const T* x, const C* weights, const int32_t* slots,
                                        const T* dy, T* dx, C* d_weights) {
  const int64_t s = blockIdx.x, row = slots[s] * width, token = s / k * width;
  C sum = 0;
  for (int64_t c = threadIdx.x * n; c < width; c += blockDim.x * n) {
    const auto grad = load_pack<n>(dy + token + c, 0), in = load_pack<n>(x + row + c, 0);
    Pack<T, n> to;
    for (int i = 0; i < n; ++i) {
      const C g = C(grad.values[i]);
      sum += g * C(in.values[i]);
      to.values[i] = static_cast<T>(weights[s] * g);
    }
    store_pack(dx + row + c, to);
  }
  sum = block_reduce(sum, Plus());
  if (threadIdx.x == 0) d_weights[s] = sum;
}

}  // namespace

void expert_weights_forward(Cuda device, const Tensor& probabilities, const Tensor& ids, const Tensor& weights) {
  dispatch_float(probabilities.dtype(), "expert_weights", [&]<class T>() {
    launch(device, "expert_weights", expert_weights_kernel<T>, blocks_for(device, ids.dim(0)), kBlock, ids.dim(0),
           probabilities.dim(1), ids.dim(1), probabilities.cuda_data<T>(), ids.cuda_data<int32_t>(),
           weights.cuda_data<T>());
  });
}

void expert_weights_backward(Cuda device, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities) {
  dispatch_float(probabilities.dtype(), "expert_weights", [&]<class T>() {
    launch(device, "expert_weights", expert_d_weights_kernel<T>, blocks_for(device, ids.dim(0)), kBlock, ids.dim(0),
           probabilities.dim(1), ids.dim(1), probabilities.cuda_data<T>(), ids.cuda_data<int32_t>(), dy.cuda_data<T>(),
           d_probabilities.cuda_data<T>());
  });
}

void combine_experts_forward(Cuda device, const Tensor& x, const Tensor& weights, const Tensor& slots,
                             const Tensor& y) {
  dispatch_float(x.dtype(), "combine_experts", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    T* to = y.cuda_data<T>();
    const int64_t width = x.dim(1);
    by_packs<T>(
        width,
        [&]<int n>() {
          launch(device, "combine_experts", expert_combine_kernel<n, T>, y.dim(0), row_threads(width / n), width,
                 slots.dim(1), from, weights.cuda_data<compute_t<T>>(), slots.cuda_data<int32_t>(), to);
        },
        from, to);
  });
}

void combine_experts_backward(Cuda device, const Tensor& x, const Tensor& weights, const Tensor& slots,
                              const Tensor& dy, const Tensor& dx, const Tensor& d_weights) {
  dispatch_float(x.dtype(), "combine_experts", [&]<class T>() {
    using C = compute_t<T>;
    const T *in = x.cuda_data<T>(), *from = dy.cuda_data<T>();
    T* to = dx.cuda_data<T>();
    const int64_t width = x.dim(1);
    by_packs<T>(
        width,
        [&]<int n>() {
          launch(device, "combine_experts", expert_d_combine_kernel<n, T>, slots.numel(), row_threads(width / n), width,
                 slots.dim(1), in, weights.cuda_data<C>(), slots.cuda_data<int32_t>(), from, to,
                 d_weights.cuda_data<C>());
        },
        in, from, to);
  });
}

}  // namespace godwit
