// For linear*.cpp only: kernels of the build's library for float32 or bfloat16 x and y; w, bias and dw are float32.
#pragma once
#include "engine/tensor.h"

namespace godwit::detail {

// Return false, without any effect, if the library has no kernel that is faster than gemm().
bool library_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
bool library_linear_backward_data(const Tensor& dy, const Tensor& w, const Tensor& dx);
bool library_linear_backward_weights(const Tensor& x, const Tensor& dy, const Tensor& dw);

}  // namespace godwit::detail
