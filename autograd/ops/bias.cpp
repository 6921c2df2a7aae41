#include "autograd/ops/bias.h"

#include <vector>

#include "engine/vector_loop.h"

namespace godwit {

void bias_forward(Cpu, const Tensor& bias, const Tensor& y) {
  dispatch_real(y.dtype(), "bias", [&]<class T>() {
    const int64_t o = bias.numel();
    const T* from = bias.data<T>();
    T* to = y.data<T>();
    parallel_for(y.numel() / o, std::max<int64_t>(1, (1 << 16) / o), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) std::copy_n(from, o, to + row * o);
    });
  });
}

void bias_backward(Cpu, const Tensor& dy, const Tensor& db) {
  constexpr int64_t kRows = 8;  // rows summed while the sums are in registers
  dispatch_float(dy.dtype(), "bias", [&]<class T>() {
    using C = compute_t<T>;
    const int64_t o = db.numel(), rows = dy.numel() / o;
    const T* from = dy.data<T>();
    C* to = db.data<C>();
    compute_for(o, std::max<int64_t>(16, (1 << 16) / (rows + 1)), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      const int64_t columns = end - begin;
      std::vector<double> sums(static_cast<size_t>(columns));
      double* __restrict sum = sums.data();
      int64_t row = 0;
      for (; row + kRows <= rows; row += kRows) {
        const T* __restrict x = from + row * o + begin;
        for (int64_t i = 0; i < columns; ++i) {
          double total = sum[i];
          for (int64_t r = 0; r < kRows; ++r) total += C(x[r * o + i]);
          sum[i] = total;
        }
      }
      for (; row < rows; ++row)
        for (int64_t i = 0; i < columns; ++i) sum[i] += C(from[row * o + begin + i]);
      for (int64_t i = 0; i < columns; ++i) to[begin + i] = static_cast<C>(sum[i]);
    });
  });
}

}  // namespace godwit
