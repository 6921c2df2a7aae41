#include "autograd/ops/pooling/global_avg_pool.h"

#include <vector>

#include "engine/vector_loop.h"

namespace godwit {

// Sums each row of pixels in compute_t, and the rows in float64.
void global_avg_pool_forward(Cpu, const Tensor& x, const Tensor& y) {
  const int64_t height = x.dim(1), width = x.dim(2), channels = x.dim(3);
  dispatch_float(x.dtype(), "global_avg_pool", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    T* mean = y.data<T>();
    compute_for(x.dim(0), 1, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<C> row(channels);
      std::vector<double> total(channels);
      for (int64_t image = begin; image < end; ++image) {
        std::fill(total.begin(), total.end(), 0);
        for (int64_t r = image * height; r < (image + 1) * height; ++r) {
          std::fill(row.begin(), row.end(), C(0));
          for (int64_t pixel = r * width; pixel < (r + 1) * width; ++pixel)
            for (int64_t c = 0; c < channels; ++c) row[c] += C(from[pixel * channels + c]);
          for (int64_t c = 0; c < channels; ++c) total[c] += static_cast<double>(row[c]);
        }
        for (int64_t c = 0; c < channels; ++c)
          mean[image * channels + c] = static_cast<T>(total[c] / static_cast<double>(height * width));
      }
    });
  });
}

void global_avg_pool_backward(Cpu, const Tensor& dy, const Tensor& dx) {
  const int64_t pixels = dx.dim(1) * dx.dim(2), channels = dx.dim(3);
  dispatch_float(dx.dtype(), "global_avg_pool", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = dy.data<T>();
    const C share = C(1) / static_cast<C>(pixels);
    T* to = dx.data<T>();
    compute_for(dx.dim(0) * pixels, 1 << 8, [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t pixel = begin; pixel < end; ++pixel)
        for (int64_t c = 0; c < channels; ++c)
          to[pixel * channels + c] = static_cast<T>(C(from[pixel / pixels * channels + c]) * share);
    });
  });
}

}  // namespace godwit
