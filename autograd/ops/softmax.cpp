#include "autograd/ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/parallel.h"

namespace godwit {
namespace {

template <class F>
void for_rows(const Tensor& x, F&& f) {
  const int64_t c = x.dim(1);
  parallel_for(x.dim(0), std::max<int64_t>(1, (1 << 13) / c), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i * c, (i + 1) * c);
  });
}

}  // namespace

void softmax_forward(Cpu, const Tensor& x, const Tensor& mask, const Tensor& y) {
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    using C = compute_t<T>;
    const uint8_t* counts = mask.defined() ? mask.data<uint8_t>() : nullptr;
    for_rows(x, [counts, from = x.data<T>(), to = y.data<T>()](int64_t begin, int64_t end) {
      C largest = -std::numeric_limits<C>::infinity(), sum = 0;
      for (int64_t i = begin; i < end; ++i)
        if (!counts || counts[i]) largest = std::max(largest, C(from[i]));
      for (int64_t i = begin; i < end; ++i)
        if (!counts || counts[i]) sum += std::exp(C(from[i]) - largest);
      for (int64_t i = begin; i < end; ++i)
        to[i] = !counts || counts[i] ? T(std::exp(C(from[i]) - largest) / sum) : T(C(0));
    });
  });
}

void softmax_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  dispatch_float(y.dtype(), "softmax", [&]<class T>() {
    using C = compute_t<T>;
    for_rows(y, [p = y.data<T>(), g = dy.data<T>(), to = dx.data<T>()](int64_t begin, int64_t end) {
      C sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += C(p[i]) * C(g[i]);
      for (int64_t i = begin; i < end; ++i) to[i] = T(C(p[i]) * (C(g[i]) - sum));
    });
  });
}

Var ops::softmax(const Var& x, const Tensor& mask) {
  check(x.shape().rank() == 2 && x.value().numel() > 0, "softmax: x must be [n, c], not empty, it is ", x.shape());
  if (mask.defined())
    check(mask.dtype() == DType::u8 && mask.shape() == x.shape(), "softmax: mask must be ", DType::u8, " ", x.shape(),
          ", it is ", mask.dtype(), " ", mask.shape());
  const Tensor y(x.shape(), x.dtype());
  softmax_forward(Cpu{}, x.value(), mask, y);
  return Var::result(y, {x}, [y, dx = x.gradient()](const Tensor& dy) {
    const Tensor g = dx.target();
    softmax_backward(Cpu{}, y, dy, g);
    dx.add(g);
  });
}

}  // namespace godwit
