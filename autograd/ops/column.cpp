#include "autograd/ops/column.h"

namespace godwit {

void column_forward(Cpu, const Tensor& x, int64_t i, const Tensor& y) {
  dispatch_float(x.dtype(), "column", [&]<class T>() {
    const T* from = x.data<T>() + i;
    for (T& value : y.span<T>()) value = *from, from += x.dim(1);
  });
}

void column_backward(Cpu, const Tensor& dy, int64_t i, const Tensor& dx) {
  dispatch_float(dx.dtype(), "column", [&]<class T>() {
    T* to = dx.data<T>() + i;
    for (const T value : dy.span<T>()) *to = T(compute_t<T>(*to) + compute_t<T>(value)), to += dx.dim(1);
  });
}

}  // namespace godwit
