#include "autograd/ops/add.h"

#include "engine/vector_loop.h"

namespace godwit {
namespace {

// y[i] = f(a[i], b[i]), computed in compute_t and rounded once
template <class F>
void zip(const Tensor& a, const Tensor& b, const Tensor& y, const char* operation, F f) {
  check_like(b, a, operation, "b");
  check_like(y, a, operation, "y");
  dispatch_float(a.dtype(), operation, [&]<class T>() {
    using C = compute_t<T>;
    const T *left = a.data<T>(), *right = b.data<T>();
    T* to = y.data<T>();
    compute_for(a.numel(), 1 << 16, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(f(C(left[i]), C(right[i])));
    });
  });
}

}  // namespace

void add_forward(Cpu, const Tensor& a, const Tensor& b, const Tensor& y) {
  zip(a, b, y, "add", [](auto left, auto right) GODWIT_INLINE { return left + right; });
}

void add_relu_forward(Cpu, const Tensor& a, const Tensor& b, const Tensor& y) {
  zip(a, b, y, "add_relu", [](auto left, auto right) GODWIT_INLINE {
    const auto sum = left + right;
    return sum < 0 ? decltype(sum)(0) : sum;
  });
}

}  // namespace godwit
