// cast: converts x to another floating-point type, rounding to nearest even; the gradient is converted back.
#pragma once
#include "autograd/var.h"

namespace godwit::ops {

// Returns x itself if it already has the type. Throws unless both types are float32, bfloat16 or float64.
Var cast(const Var& x, DType dtype);

}  // namespace godwit::ops
