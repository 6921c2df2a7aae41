#include "autograd/ops/softmax.h"

#include <algorithm>
#include <limits>

#include "engine/vector_loop.h"
#include "engine/vector_math.h"

namespace godwit {
namespace {

// Calls f(begin, end) for the elements of each row of x.
template <class F>
void for_rows(const Tensor& x, const F& f) {
  const int64_t c = x.dim(1);
  compute_for(x.dim(0), std::max<int64_t>(1, (1 << 13) / c), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t i = begin; i < end; ++i) f(i * c, (i + 1) * c);
  });
}

// Σ f(i) for i in [begin, end), in sixteen partial sums that stay in vectors.
template <class C, class F>
GODWIT_INLINE inline C sum_of(int64_t begin, int64_t end, const F& f) {
  constexpr int64_t kSums = 16;
  C sums[kSums] = {}, total = 0;
  int64_t i = begin;
  for (; i + kSums <= end; i += kSums)
    for (int64_t l = 0; l < kSums; ++l) sums[l] += f(i + l);
  for (; i < end; ++i) total += f(i);
  for (const C sum : sums) total += sum;
  return total;
}

}  // namespace

void softmax_forward(Cpu, const Tensor& x, const Tensor& mask, const Tensor& y) {
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    using C = compute_t<T>;
    const uint8_t* counts = mask.defined() ? mask.data<uint8_t>() : nullptr;
    for_rows(x, [counts, from = x.data<T>(), to = y.data<T>()](int64_t begin, int64_t end) GODWIT_INLINE {
      C largest = -std::numeric_limits<C>::infinity();
      for (int64_t i = begin; i < end; ++i)
        if (!counts || counts[i]) largest = std::max(largest, C(from[i]));
      auto term = [&](int64_t i) GODWIT_INLINE { return exp_of(C(from[i]) - largest); };
      if (counts) {
        const C sum = sum_of<C>(begin, end, [&](int64_t i) GODWIT_INLINE { return counts[i] ? term(i) : C(0); });
        for (int64_t i = begin; i < end; ++i) to[i] = counts[i] ? T(term(i) / sum) : T(C(0));
      } else {
        const C sum = sum_of<C>(begin, end, term);
        for (int64_t i = begin; i < end; ++i) to[i] = T(term(i) / sum);
      }
    });
  });
}

void softmax_backward(Cpu, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  dispatch_float(y.dtype(), "softmax", [&]<class T>() {
    using C = compute_t<T>;
    for_rows(y, [p = y.data<T>(), g = dy.data<T>(), to = dx.data<T>()](int64_t begin, int64_t end) GODWIT_INLINE {
      const C sum = sum_of<C>(begin, end, [&](int64_t i) GODWIT_INLINE { return C(p[i]) * C(g[i]); });
      GODWIT_IN_PLACE
      for (int64_t i = begin; i < end; ++i) to[i] = T(C(p[i]) * (C(g[i]) - sum));
    });
  });
}

Var ops::softmax(const Var& x, const Tensor& mask) {
  check(x.shape().rank() == 2 && x.value().numel() > 0, "softmax: x must be [n, c], not empty, got ", x.shape());
  if (mask.defined())
    check(mask.dtype() == DType::u8 && mask.shape() == x.shape(), "softmax: mask must be ", DType::u8, " ", x.shape(),
          ", got ", mask.dtype(), " ", mask.shape());
  const Tensor y(x.shape(), x.dtype(), x.device());
  const Tensor there = mask.defined() ? mask.to(x.device()) : mask;
  on_device(y, [&](auto device) { softmax_forward(device, x.value(), there, y); });
  return Var::result(y, {x}, [y, dx = x.gradient()](const Tensor& dy) {
    const Tensor g = dx.target();
    on_device(y, [&](auto device) { softmax_backward(device, y, dy, g); });
    dx.add(g);
  });
}

}  // namespace godwit
