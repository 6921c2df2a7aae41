// conv2d: images [n, h, w, c] correlated with filters [o, kh, kw, c/groups], plus a bias [o], to [n, ho, wo, o].
#pragma once
#include "autograd/var.h"

namespace godwit {

// One number for both directions; zeros are padded on all four sides.
struct Conv2dOptions {
  int stride = 1, padding = 0, dilation = 1, groups = 1;
};

// The extents of one convolution: ho = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, wo likewise.
struct Conv2dShape {
  int64_t n, h, w, c;  // images
  int64_t o, kh, kw;   // filters
  int64_t ho, wo;      // result
  int64_t stride, padding, dilation, groups;
};

// Throws where images and filters do not fit, or the result would be empty.
Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dOptions& options);

// Images, results and their gradients are float32, bfloat16 or float64; filters, bias and their gradients have the same
// type, float32 beside bfloat16. float64: the same bits on any thread count. Else through oneDNN: the same bits on the
// same thread count; for bfloat16 it rounds the filters to bfloat16 and sums in float32. On a GPU through cuDNN, by
// engines that give the same bits each time; where it has none, and for float64, by plain loops, which are slow.
void conv2d_forward(Cpu, const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
void conv2d_forward(Cuda, const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
void conv2d_backward_data(Cpu, const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx);
void conv2d_backward_data(Cuda, const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx);
// An undefined bias or db is left out.
void conv2d_backward_weights(Cpu, const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             const Tensor& db);
void conv2d_backward_weights(Cuda, const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             const Tensor& db);

namespace ops {

Var conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options = {});
inline Var conv2d(const Var& x, const Var& w, const Conv2dOptions& options = {}) {
  return conv2d(x, w, Var(), options);
}

}  // namespace ops
}  // namespace godwit
