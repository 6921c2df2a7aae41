// 16-bit wire: float32 values rounded to bfloat16 or float16, and the mean of such values from several senders.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// x (float32) in the type `wire`, to nearest even. Throws when a finite value is beyond what the type holds (float16:
// 65504); infinities and NaN stay. `operation` begins the message.
Tensor to_half(Cpu, const Tensor& x, DType wire, const char* operation);
void from_half(Cpu, const Tensor& halves, const Tensor& x);  // exact
// mean [k] = (Σ over senders of parts [senders·k], in float32 and in their order) / divisor, rounded once.
void mean_of_halves(Cpu, const Tensor& parts, int divisor, const Tensor& mean);

}  // namespace godwit
