// Average pooling to a given height and width, per channel: [n, h, w, c] to [n, out_h, out_w, c], as in PyTorch.
#pragma once
#include "autograd/var.h"

namespace godwit {

// Window i of an axis covers inputs [floor(i · in / out), ceil((i + 1) · in / out)); y is the mean of each window.
void adaptive_avg_pool2d_forward(Cpu, const Tensor& x, const Tensor& y);
void adaptive_avg_pool2d_forward(Cuda, const Tensor& x, const Tensor& y);
// dx = the sum of dy / size over the windows that cover the pixel.
void adaptive_avg_pool2d_backward(Cpu, const Tensor& dy, const Tensor& dx);
void adaptive_avg_pool2d_backward(Cuda, const Tensor& dy, const Tensor& dx);

namespace ops {

// Returns x itself if x has this height and width. Throws if x is not an image or has no pixels, or if height or width
// is not positive.
Var adaptive_avg_pool2d(const Var& x, int64_t height, int64_t width);

}  // namespace ops
}  // namespace godwit
