// Weights as the kernels of a forward and a backward pass read them.
#pragma once
#include "engine/rounded_copy.h"
#include "engine/tensor.h"

namespace godwit {

// On a GPU, w rounded to `type`, the type of the activations, so that both passes read the same copy: the one that the
// optimizer's kernel wrote, if it is current. Otherwise w itself: CPU kernels round while they pack.
inline Tensor kernel_weights(const Tensor& w, DType type) {
  if (!w.device().is_cuda() || w.dtype() == type) return w;
  const Tensor copy = type == DType::bf16 && w.dtype() == DType::f32 ? rounded_copy(w) : Tensor();
  return copy.defined() ? copy : w.to(type);
}

// What the backward pass keeps of a weight w and its kernel_weights(): w itself if its memory is attached, so that no
// copy of a sharded parameter stays between the passes. Both passes then round it.
inline const Tensor& kept_weights(const Tensor& w, const Tensor& of_kernels) { return w.attachable() ? w : of_kernels; }

}  // namespace godwit
