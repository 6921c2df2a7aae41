#include "autograd/ops/conv2d_kernels.h"

namespace godwit::detail {

void conv2d_forward_f32(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  Im2col<float>(s).forward(x, w, bias, y);
}

void conv2d_backward_data_f32(const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx) {
  Im2col<float>(s).backward_data(dy, w, dx);
}

void conv2d_backward_weights_f32(const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                                 const Tensor& db) {
  Im2col<float>(s).backward_weights(x, dy, dw, db);
}

}  // namespace godwit::detail
