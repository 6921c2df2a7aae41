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
  dispatch_float(dy.dtype(), "bias", [&]<class T>() {
    const int64_t o = db.numel(), rows = dy.numel() / o;
    const T* from = dy.data<T>();
    auto* to = db.data<compute_t<T>>();
    vector_for(o, std::max<int64_t>(16, (1 << 16) / (rows + 1)), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<double> sum(static_cast<size_t>(end - begin));
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = begin; i < end; ++i) sum[static_cast<size_t>(i - begin)] += compute_t<T>(from[row * o + i]);
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<compute_t<T>>(sum[static_cast<size_t>(i - begin)]);
    });
  });
}

}  // namespace godwit
