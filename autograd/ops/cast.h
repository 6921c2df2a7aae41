// cast: converts x to another floating-point type, rounding to nearest even. The gradient is converted back.
#pragma once
#include "autograd/var.h"

namespace godwit {
namespace ops {

// Returns x itself if x already has the type. Throws unless both types are float32, bfloat16 or float64.
Var cast(const Var& x, DType dtype);

}  // namespace ops

namespace detail {

// Whether an operation with many products should convert bfloat16 x to float32 once. True on the CPU without
// fast_bf16().
bool faster_in_f32(const Var& x);

}  // namespace detail
}  // namespace godwit
