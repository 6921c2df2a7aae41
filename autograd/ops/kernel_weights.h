// Weights in the form that the kernels of a forward and a backward pass read.
#pragma once
#include "engine/rounded_copy.h"
#include "engine/tensor.h"

namespace godwit {

// On a GPU, returns w rounded to `type`, the type of the activations, so that both passes read one copy. The result is
// w's RoundedCopy if it is current, otherwise a new copy. On the CPU, returns w itself, because kernels round while
// they pack.
inline Tensor kernel_weights(const Tensor& w, DType type) {
  if (!w.device().is_cuda() || w.dtype() == type) return w;
  const Tensor copy = type == DType::bf16 && w.dtype() == DType::f32 ? rounded_copy(w) : Tensor();
  return copy.defined() ? copy : w.to(type);
}

// The tensor that the backward pass keeps. If w's memory is attachable, this is w itself: both passes then round w, and
// no copy of a sharded parameter exists between the passes. Otherwise, it is kernel_weights() of w.
inline const Tensor& kept_weights(const Tensor& w, const Tensor& of_kernels) { return w.attachable() ? w : of_kernels; }

}  // namespace godwit
