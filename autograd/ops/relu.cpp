#include "autograd/ops/relu.h"

#include "engine/vector_loop.h"

namespace godwit {
namespace {
constexpr int64_t kReluGrain = 1 << 16;  // minimum elements per thread
}

void relu_forward(Cpu, const Tensor& x, const Tensor& y) {
  check_like(y, x, "relu", "y");
  dispatch_float(x.dtype(), "relu", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    compute_for(x.numel(), kReluGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) {
        const T value = from[i];
        to[i] = value < 0 ? T(0) : value;
      }
    });
  });
}

void relu_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  check_like(dy, y, "relu", "dy");
  check_like(dx, y, "relu", "dx");
  dispatch_float(y.dtype(), "relu", [&]<class T>() {
    const T *out = y.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    compute_for(y.numel(), kReluGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) {
        const T g = from[i];
        to[i] = out[i] <= 0 ? T(0) : g;
      }
    });
  });
}

}  // namespace godwit
