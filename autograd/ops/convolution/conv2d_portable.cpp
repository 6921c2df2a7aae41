#include "autograd/ops/convolution/conv2d_kernels.h"

namespace godwit::detail {

bool conv2d_forward_library(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias,
                            const Tensor& y) {
  if (x.dtype() != DType::f32) return false;
  Im2col<float>(s).forward(x, w, bias, y);
  return true;
}

bool conv2d_backward_data_library(const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx) {
  if (dy.dtype() != DType::f32) return false;
  Im2col<float>(s).backward_data(dy, w, dx);
  return true;
}

bool conv2d_backward_weights_library(const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                                     const Tensor& db) {
  if (x.dtype() != DType::f32) return false;
  Im2col<float>(s).backward_weights(x, dy, dw, db);
  return true;
}

}  // namespace godwit::detail
