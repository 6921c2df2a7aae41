// Inside linear*.cpp: the bfloat16 kernels of the build's library; w, bias and dw are float32.
#pragma once
#include "engine/tensor.h"

namespace godwit::detail {

// False, with nothing done, where the library has none.
bool linear_forward_bf16(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
bool linear_backward_data_bf16(const Tensor& dy, const Tensor& w, const Tensor& dx);
bool linear_backward_weights_bf16(const Tensor& x, const Tensor& dy, const Tensor& dw);

}  // namespace godwit::detail
