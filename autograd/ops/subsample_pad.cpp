#include "autograd/ops/subsample_pad.h"

#include "engine/parallel.h"

namespace godwit {
namespace {

int64_t subsample_grain(int64_t row) { return std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(row, 1)); }

}  // namespace

void subsample_pad_forward(Cpu, const Tensor& x, int stride, const Tensor& y) {
  const int64_t h = x.dim(1), w = x.dim(2), c = x.dim(3), out_h = y.dim(1), out_w = y.dim(2), out_c = y.dim(3);
  dispatch_float(x.dtype(), "subsample_pad", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(y.dim(0) * out_h, subsample_grain(out_w * out_c), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = from + (row / out_h * h + row % out_h * stride) * w * c;
        T* out = to + row * out_w * out_c;
        for (int64_t j = 0; j < out_w; ++j, in += stride * c, out += out_c)
          std::fill(std::copy_n(in, c, out), out + out_c, T(0));
      }
    });
  });
}

void subsample_pad_backward(Cpu, const Tensor& dy, int stride, const Tensor& dx) {
  const int64_t h = dx.dim(1), w = dx.dim(2), c = dx.dim(3), out_h = dy.dim(1), out_w = dy.dim(2), out_c = dy.dim(3);
  dispatch_float(dy.dtype(), "subsample_pad", [&]<class T>() {
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(dx.dim(0) * h, subsample_grain(w * c), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* out = to + row * w * c;
        std::fill_n(out, w * c, T(0));
        const int64_t i = row % h;
        if (i % stride != 0) continue;
        const T* in = from + (row / h * out_h + i / stride) * out_w * out_c;
        for (int64_t j = 0; j < out_w; ++j) std::copy_n(in + j * out_c, c, out + j * stride * c);
      }
    });
  });
}

Var ops::subsample_pad(const Var& x, int stride, int64_t channels) {
  check(x.shape().rank() == 4, "subsample_pad: x must be [n, h, w, c], got ", x.shape());
  check(stride >= 1, "subsample_pad: stride must be at least 1, got ", stride);
  check(channels >= x.dim(3), "subsample_pad: cannot go from ", x.dim(3), " channels down to ", channels);
  const Shape shape = x.shape();
  Tensor y({shape[0], (shape[1] + stride - 1) / stride, (shape[2] + stride - 1) / stride, channels}, x.dtype(),
           x.device());
  on_device(y, [&](auto device) { subsample_pad_forward(device, x.value(), stride, y); });
  return Var::result(y, {x}, [dx = x.gradient(), stride](const Tensor& dy) {
    if (!dx) return;
    const Tensor g = dx.target();
    on_device(dy, [&](auto device) { subsample_pad_backward(device, dy, stride, g); });
    dx.add(g);
  });
}

}  // namespace godwit
