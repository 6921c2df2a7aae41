// Weights as the kernels of a forward and a backward pass read them.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// On a GPU, w rounded to `type`, the type of the activations, so that both passes read the same copy. Otherwise w
// itself: CPU kernels round while they pack.
inline Tensor kernel_weights(const Tensor& w, DType type) {
  return w.device().is_cuda() && w.dtype() != type ? w.to(type) : w;
}

}  // namespace godwit
