// 16-bit wire: float32 values rounded to bfloat16 or float16, and the mean of such values from several senders.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// x (float32) in the type `wire`, to nearest even. Throws when a finite value is beyond what the type holds (float16:
// 65504); infinities and NaN stay. `operation` begins the message.
// On a GPU the host waits to learn that.
Tensor to_half(Cpu, const Tensor& x, DType wire, const char* operation);
Tensor to_half(Cuda, const Tensor& x, DType wire, const char* operation);
void from_half(Cpu, const Tensor& halves, const Tensor& x);  // exact
void from_half(Cuda, const Tensor& halves, const Tensor& x);
// mean [k] = (Σ over senders of parts [senders·k], in float32 and in their order) / divisor, rounded once.
void mean_of_halves(Cpu, const Tensor& parts, int divisor, const Tensor& mean);
void mean_of_halves(Cuda, const Tensor& parts, int divisor, const Tensor& mean);

// The same by where values are.
inline Tensor to_half(const Tensor& x, DType wire, const char* operation) {
  return on_device(x, [&](auto device) { return to_half(device, x, wire, operation); });
}
inline void from_half(const Tensor& halves, const Tensor& x) {
  on_device(x, [&](auto device) { from_half(device, halves, x); });
}
inline void mean_of_halves(const Tensor& parts, int divisor, const Tensor& mean) {
  on_device(mean, [&](auto device) { mean_of_halves(device, parts, divisor, mean); });
}

}  // namespace godwit
