#include "autograd/ops/prepend_token.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

template <class T>
struct Prepended {
  using C = compute_t<T>;
  int64_t length, width;  // of y
  const T* x;
  const C *token, *positions;
  __device__ C operator()(int64_t at) const {
    const int64_t row = at / width, i = row % length, k = at % width;
    const C value = i == 0 ? token[k] : C(x[(row - row / length - 1) * width + k]);
    return value + positions[i * width + k];
  }
};

template <class T>
struct WithoutFirst {
  int64_t length, width;  // of dx
  const T* dy;
  __device__ T operator()(int64_t at) const { return dy[at + (at / (length * width) + 1) * width]; }
};

}  // namespace

void prepend_token_forward(Cuda device, const Tensor& x, const Tensor& token, const Tensor& positions,
                           const Tensor& y) {
  dispatch_float(x.dtype(), "prepend_token", [&]<class T>() {
    using C = compute_t<T>;
    generate(device, "prepend_token", y.numel(),
             Prepended<T>{y.dim(1), y.dim(2), x.cuda_data<T>(), token.cuda_data<C>(), positions.cuda_data<C>()},
             y.cuda_data<T>());
  });
}

void prepend_token_backward(Cuda device, const Tensor& dy, const Tensor& dx) {
  dispatch_float(dy.dtype(), "prepend_token", [&]<class T>() {
    generate(device, "prepend_token", dx.numel(), WithoutFirst<T>{dx.dim(1), dx.dim(2), dy.cuda_data<T>()},
             dx.cuda_data<T>());
  });
}

}  // namespace godwit
