// 16-bit wire format: float32 values rounded to bfloat16 or float16, and means of such values from several senders.
#pragma once
#include <string>

#include "engine/tensor.h"

namespace godwit {

// Rounds float32 x to the type `wire` (bf16 or f16), to nearest even. Infinities and NaN are kept. Throws if a finite
// value overflows (float16: 65520 or more). The message begins with `operation` and contains the first such value. On a
// GPU, read_on_host() runs the check, and the message contains the largest magnitude instead.
Tensor to_half(Cpu, const Tensor& x, DType wire, const char* operation);
Tensor to_half(Cuda, const Tensor& x, DType wire, const char* operation);
[[noreturn]] void fail_overflow(const std::string& operation, float value, DType wire);  // the error of to_half()
void from_half(Cpu, const Tensor& halves, const Tensor& x);  // float32 x ← halves, exact
void from_half(Cuda, const Tensor& halves, const Tensor& x);
// mean [k] = (sum of parts [senders, k] over the senders, in float32 and in sender order) / divisor, rounded once.
void mean_of_halves(Cpu, const Tensor& parts, int divisor, const Tensor& mean);
void mean_of_halves(Cuda, const Tensor& parts, int divisor, const Tensor& mean);

// The overloads below dispatch on the device.
inline Tensor to_half(const Tensor& x, DType wire, const char* operation) {
  check(x.dtype() == DType::f32, operation, ": a wire of type ", wire, " sends float32 values, got ", x.dtype());
  return on_device(x, [&](auto device) { return to_half(device, x, wire, operation); });
}
inline void from_half(const Tensor& halves, const Tensor& x) {  // dispatches on the device
  on_device(x, [&](auto device) { from_half(device, halves, x); });
}
inline void mean_of_halves(const Tensor& parts, int divisor, const Tensor& mean) {  // dispatches on the device
  on_device(mean, [&](auto device) { mean_of_halves(device, parts, divisor, mean); });
}

}  // namespace godwit
