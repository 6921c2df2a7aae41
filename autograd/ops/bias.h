// Kernels of linear and conv2d: bias over the last extent, y [.., o] from bias [o], and the gradient of the bias.
#pragma once
#include "engine/tensor.h"

namespace godwit {

void bias_forward(Cpu, const Tensor& bias, const Tensor& y);  // sets each row of y to the bias
void bias_forward(Cuda, const Tensor& bias, const Tensor& y);
// db = sum of the rows of dy, in float64 and in row order. db has the type of dy, or float32 if dy is bfloat16.
void bias_backward(Cpu, const Tensor& dy, const Tensor& db);
void bias_backward(Cuda, const Tensor& dy, const Tensor& db);

}  // namespace godwit
