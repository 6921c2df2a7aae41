#include "autograd/ops/tanh.h"
#include "engine/cuda/elementwise.h"
#include "engine/vector_math.h"

namespace godwit {
namespace {

struct Tanh {
  template <class C>
  __device__ C operator()(C x) const {
    return tanh_of(x);
  }
};

struct TanhGradient {
  template <class C>
  __device__ C operator()(C y, C dy) const {
    return dy * (1 - y * y);
  }
};

}  // namespace

void tanh_forward(Cuda device, const Tensor& x, const Tensor& y) {
  check_like(y, x, "tanh", "y");
  dispatch_float(x.dtype(), "tanh", [&]<class T>() {
    elementwise(device, "tanh", x.numel(), Tanh{}, y.cuda_data<T>(), x.cuda_data<T>());
  });
}

void tanh_backward(Cuda device, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  check_like(dy, y, "tanh", "dy");
  check_like(dx, y, "tanh", "dx");
  dispatch_float(y.dtype(), "tanh", [&]<class T>() {
    elementwise(device, "tanh", y.numel(), TanhGradient{}, dx.cuda_data<T>(), y.cuda_data<T>(), dy.cuda_data<T>());
  });
}

}  // namespace godwit
