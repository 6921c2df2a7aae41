#include "autograd/accumulate.h"

#include "engine/vector_loop.h"

namespace godwit {

void accumulate(Cpu, const Tensor& x, const Tensor& y) {
  check_like(x, y, "accumulate", "x");
  dispatch_float(x.dtype(), "accumulate", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    compute_for(x.numel(), 1 << 16, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) to[i] = T(compute_t<T>(to[i]) + compute_t<T>(from[i]));
    });
  });
}

}  // namespace godwit
