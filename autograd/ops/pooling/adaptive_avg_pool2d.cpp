#include "autograd/ops/pooling/adaptive_avg_pool2d.h"

#include "autograd/ops/pooling/adaptive_windows.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

detail::AdaptiveWindows<int64_t> windows(const Tensor& x, const Tensor& y) {
  return {{x.dim(1), y.dim(1)}, {x.dim(2), y.dim(2)}, x.dim(3)};
}

int64_t pool_grain(int64_t row) { return std::max<int64_t>(1, (1 << 12) / std::max<int64_t>(row, 1)); }

}  // namespace

void adaptive_avg_pool2d_forward(Cpu, const Tensor& x, const Tensor& y) {
  const detail::AdaptiveWindows<int64_t> w = windows(x, y);
  const int64_t out_h = y.dim(1), out_w = y.dim(2), image = x.dim(1) * x.dim(2) * x.dim(3), c = w.channels;
  dispatch_float(x.dtype(), "adaptive_avg_pool2d", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(y.dim(0) * out_h, pool_grain(out_w * c), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t i = 0; i < out_w * c; ++i)
          to[row * out_w * c + i] = static_cast<T>(w.mean(from + row / out_h * image + i % c, row % out_h, i / c));
    });
  });
}

void adaptive_avg_pool2d_backward(Cpu, const Tensor& dy, const Tensor& dx) {
  const detail::AdaptiveWindows<int64_t> w = windows(dx, dy);
  const int64_t in_h = dx.dim(1), in_w = dx.dim(2), image = dy.dim(1) * dy.dim(2) * dy.dim(3), c = w.channels;
  dispatch_float(dy.dtype(), "adaptive_avg_pool2d", [&]<class T>() {
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(dx.dim(0) * in_h, pool_grain(in_w * c), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t i = 0; i < in_w * c; ++i)
          to[row * in_w * c + i] = static_cast<T>(w.spread(from + row / in_h * image + i % c, row % in_h, i / c));
    });
  });
}

Var ops::adaptive_avg_pool2d(const Var& x, int64_t height, int64_t width) {
  check(x.shape().rank() == 4, "adaptive_avg_pool2d: x must be [n, h, w, c], got ", x.shape());
  check(x.dim(1) > 0 && x.dim(2) > 0, "adaptive_avg_pool2d: x must have pixels, got ", x.shape());
  check(height > 0 && width > 0, "adaptive_avg_pool2d: height and width must be positive, got ", height, " and ",
        width);
  if (x.dim(1) == height && x.dim(2) == width) return x;
  Tensor y({x.dim(0), height, width, x.dim(3)}, x.dtype(), x.device());
  on_device(y, [&](auto device) { adaptive_avg_pool2d_forward(device, x.value(), y); });
  return Var::result(y, {x}, [dx = x.gradient()](const Tensor& dy) {
    const Tensor g = dx.target();
    on_device(dy, [&](auto device) { adaptive_avg_pool2d_backward(device, dy, g); });
    dx.add(g);
  });
}

}  // namespace godwit
