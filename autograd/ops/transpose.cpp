#include "autograd/ops/transpose.h"

#include "engine/parallel.h"

namespace godwit {

void transpose_forward(Cpu, const Tensor& x, const Tensor& y) {
  const int64_t a = x.dim(1), b = x.dim(2);
  dispatch_float(x.dtype(), "transpose", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(x.dim(0) * b, std::max<int64_t>(1, (1 << 14) / (a + 1)), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = from + row / b * a * b + row % b;
        for (int64_t i = 0; i < a; ++i) to[row * a + i] = in[i * b];
      }
    });
  });
}

Var ops::transpose(const Var& x) {
  check(x.shape().rank() == 3, "transpose: x must be [n, a, b], got ", x.shape());
  const Tensor y({x.dim(0), x.dim(2), x.dim(1)}, x.dtype(), x.device());
  on_device(y, [&](auto device) { transpose_forward(device, x.value(), y); });
  return Var::result(y, {x}, [dx = x.gradient()](const Tensor& dy) {
    const Tensor g = dx.target();
    on_device(dy, [&](auto device) { transpose_forward(device, dy, g); });
    dx.add(g);
  });
}

}  // namespace godwit
