// cast: x in another floating-point type, rounded to nearest even; the gradient is cast back.
#pragma once
#include "autograd/var.h"

namespace godwit::ops {

// x itself when it has the type already. Throws unless both types are float32, bfloat16 or float64.
Var cast(const Var& x, DType dtype);

}  // namespace godwit::ops
