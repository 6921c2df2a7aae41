// conv2d: cross-correlation of images [n, h, w, c] with filters [o, kh, kw, c/groups], plus bias [o]. The result is [n,
// ho, wo, o].
#pragma once
#include "autograd/var.h"

namespace godwit {

// Each value applies to both dimensions. Padding adds zeros on all four sides.
struct Conv2dOptions {
  int stride = 1, padding = 0, dilation = 1, groups = 1;  // groups: channel groups, convolved separately
};

// Extents of one convolution: ho = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, and wo by the same formula.
struct Conv2dShape {
  int64_t n, h, w, c;                         // images
  int64_t o, kh, kw;                          // filters
  int64_t ho, wo;                             // output
  int64_t stride, padding, dilation, groups;  // see Conv2dOptions
};

// Throws if images and filters do not match, or if the output would be empty.
Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dOptions& options);

// Computes y. An undefined bias means no bias. Images, outputs and their gradients are float32, bfloat16 or float64.
// Filters, bias and their gradients have the type of the images, or float32 for bfloat16 images. On the CPU, float64
// results are bit-identical for any thread count. CPU float32 and bfloat16 results through oneDNN are bit-identical for
// the same thread count. For bfloat16, sums are in float32; with fast_bf16(), the filters are rounded to bfloat16. On a
// GPU, deterministic cuDNN engines are used. Slow plain kernels handle float64 and shapes that cuDNN does not support.
void conv2d_forward(Cpu, const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
void conv2d_forward(Cuda, const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
// Computes dx, the gradient of the images.
void conv2d_backward_data(Cpu, const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx);
void conv2d_backward_data(Cuda, const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx);
// Computes dw and, if db is defined, db.
void conv2d_backward_weights(Cpu, const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             const Tensor& db);
void conv2d_backward_weights(Cuda, const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             const Tensor& db);

namespace ops {

// The convolution of x [n, h, w, c] with w [o, kh, kw, c/groups] plus bias [o], as [n, ho, wo, o]. An undefined bias
// means no bias. Throws for other shapes or types.
Var conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options = {});
inline Var conv2d(const Var& x, const Var& w, const Conv2dOptions& options = {}) {
  return conv2d(x, w, Var(), options);
}

}  // namespace ops
}  // namespace godwit
