#include "autograd/ops/scale.h"

#include "engine/vector_loop.h"

namespace godwit {

void scale_forward(Cpu, const Tensor& x, double factor, const Tensor& y) {
  check_like(y, x, "scale", "y");
  dispatch_float(x.dtype(), "scale", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const auto by = static_cast<compute_t<T>>(factor);
    compute_for(x.numel(), 1 << 16, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) to[i] = T(by * compute_t<T>(from[i]));
    });
  });
}

}  // namespace godwit
