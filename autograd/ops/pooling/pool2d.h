// Max and average pooling over square windows of [n, h, w, c], as in PyTorch (the output size is rounded down).
#pragma once
#include "autograd/var.h"

namespace godwit {

// Extents of the pooling windows in pixels, for both dimensions.
struct Pool2dOptions {
  int kernel = 2, stride = 2, padding = 0;  // padding on each side, at most kernel / 2
};

// Returns [n, out_h, out_w, c]. Throws if x is not an image or the window does not fit.
Shape pool2d_shape(const Tensor& x, const Pool2dOptions& options, const char* operation);

// y is the maximum of each window. `taps` (uint8, y's shape) is the row-major position of the maximum in the window.
// Ties go to the first position. NaN counts as larger than any number; padding is never selected.
void max_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y, const Tensor& taps);
void max_pool2d_forward(Cuda, const Tensor& x, const Pool2dOptions& options, const Tensor& y, const Tensor& taps);
// dx: each dy is added at the position of the maximum of its window.
void max_pool2d_backward(Cpu, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx);
void max_pool2d_backward(Cuda, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx);

// y is the sum of each window / kernel²; padding counts as zeros.
void avg_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y);
void avg_pool2d_forward(Cuda, const Tensor& x, const Pool2dOptions& options, const Tensor& y);
// dx: each dy / kernel² is added to all pixels of its window.
void avg_pool2d_backward(Cpu, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx);
void avg_pool2d_backward(Cuda, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx);

namespace ops {

// Max pooling. Throws like pool2d_shape(), and for kernels above 16, because the position of a maximum is stored in one
// byte.
inline Var max_pool2d(const Var& x, const Pool2dOptions& options) {
  const Shape shape = pool2d_shape(x.value(), options, "max_pool2d");
  check(options.kernel <= 16, "max_pool2d: kernel is ", options.kernel, ", at most 16 is supported");
  Tensor y(shape, x.dtype(), x.device()), taps(shape, DType::u8, x.device());
  on_device(y, [&](auto device) { max_pool2d_forward(device, x.value(), options, y, taps); });
  return Var::result(y, {x}, [dx = x.gradient(), taps, options](const Tensor& dy) {
    Tensor g = dx.target();
    on_device(dy, [&](auto device) { max_pool2d_backward(device, taps, dy, options, g); });
    dx.add(g);
  });
}

// Average pooling; padding counts as zeros. Throws like pool2d_shape().
inline Var avg_pool2d(const Var& x, const Pool2dOptions& options) {
  Tensor y(pool2d_shape(x.value(), options, "avg_pool2d"), x.dtype(), x.device());
  on_device(y, [&](auto device) { avg_pool2d_forward(device, x.value(), options, y); });
  return Var::result(y, {x}, [dx = x.gradient(), options](const Tensor& dy) {
    Tensor g = dx.target();
    on_device(dy, [&](auto device) { avg_pool2d_backward(device, dy, options, g); });
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
