// Weights as the kernels of a forward and a backward pass read them.
#pragma once
#include "engine/rounded_copy.h"
#include "engine/tensor.h"

namespace godwit {

// On a GPU, w rounded to `type`, the type of the activations, so that both passes read the same copy: w's RoundedCopy
// if it is current, otherwise a new copy. On the CPU, w itself: kernels round while they pack.
inline Tensor kernel_weights(const Tensor& w, DType type) {
  if (!w.device().is_cuda() || w.dtype() == type) return w;
  const Tensor copy = type == DType::bf16 && w.dtype() == DType::f32 ? rounded_copy(w) : Tensor();
  return copy.defined() ? copy : w.to(type);
}

// The tensor that the backward pass keeps: w itself if its memory is attachable, so that no copy of a sharded parameter
// stays between the passes, and both passes round w; otherwise w's kernel_weights().
inline const Tensor& kept_weights(const Tensor& w, const Tensor& of_kernels) { return w.attachable() ? w : of_kernels; }

}  // namespace godwit
