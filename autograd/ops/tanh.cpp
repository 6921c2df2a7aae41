#include "autograd/ops/tanh.h"

#include "engine/vector_loop.h"
#include "engine/vector_math.h"

namespace godwit {
namespace {
constexpr int64_t kTanhGrain = 1 << 14;  // minimum elements per thread
}

void tanh_forward(Cpu, const Tensor& x, const Tensor& y) {
  check_like(y, x, "tanh", "y");
  dispatch_float(x.dtype(), "tanh", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    compute_for(x.numel(), kTanhGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(tanh_of(compute_t<T>(from[i])));
    });
  });
}

void tanh_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  check_like(dy, y, "tanh", "dy");
  check_like(dx, y, "tanh", "dx");
  dispatch_float(y.dtype(), "tanh", [&]<class T>() {
    using C = compute_t<T>;
    const T *out = y.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    compute_for(y.numel(), kTanhGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) {
        const C value = C(out[i]);
        to[i] = static_cast<T>(C(from[i]) * (1 - value * value));
      }
    });
  });
}

}  // namespace godwit
