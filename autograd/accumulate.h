// Sums gradient contributions: y += x, for float32, bfloat16 and float64 tensors of equal shape.
#pragma once
#include "engine/tensor.h"

namespace godwit {

void accumulate(Cpu, const Tensor& x, const Tensor& y);  // y += x
void accumulate(Cuda, const Tensor& x, const Tensor& y);

}  // namespace godwit
