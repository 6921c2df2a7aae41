// subsample_pad: keeps every stride-th pixel and appends zero channels: the parameter-free shortcut of CIFAR ResNets.
#pragma once
#include "autograd/var.h"

namespace godwit {

// y [n, ceil(h/stride), ceil(w/stride), c'] from x [n, h, w, c], c' >= c: y(i, j) = x(stride·i, stride·j), then zeros.
void subsample_pad_forward(Cpu, const Tensor& x, int stride, const Tensor& y);
void subsample_pad_forward(Cuda, const Tensor& x, int stride, const Tensor& y);
// dx from dy, with the shapes above. Skipped pixels get 0.
void subsample_pad_backward(Cpu, const Tensor& dy, int stride, const Tensor& dx);
void subsample_pad_backward(Cuda, const Tensor& dy, int stride, const Tensor& dx);

namespace ops {

// He et al. 2016, section 3.3, option A. Throws unless x has rank 4, stride >= 1 and channels >= x.dim(3).
Var subsample_pad(const Var& x, int stride, int64_t channels);

}  // namespace ops
}  // namespace godwit
