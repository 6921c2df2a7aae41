#include "autograd/ops/relu.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

struct Relu {
  template <class C>
  __device__ C operator()(C x) const {
    return x < 0 ? C(0) : x;
  }
};

struct ReluGradient {
  template <class C>
  __device__ C operator()(C y, C dy) const {
    return y <= 0 ? C(0) : dy;
  }
};

}  // namespace

void relu_forward(Cuda device, const Tensor& x, const Tensor& y) {
  check_like(y, x, "relu", "y");
  dispatch_float(x.dtype(), "relu", [&]<class T>() {
    elementwise(device, "relu", x.numel(), Relu{}, y.cuda_data<T>(), x.cuda_data<T>());
  });
}

void relu_backward(Cuda device, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  check_like(dy, y, "relu", "dy");
  check_like(dx, y, "relu", "dx");
  dispatch_float(y.dtype(), "relu", [&]<class T>() {
    elementwise(device, "relu", y.numel(), ReluGradient{}, dx.cuda_data<T>(), y.cuda_data<T>(), dy.cuda_data<T>());
  });
}

}  // namespace godwit
