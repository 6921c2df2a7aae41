// Value and gradients of swiglu for one element. Only swiglu.cpp and swiglu.cu include this header.
#pragma once
#include "engine/vector_math.h"

namespace godwit::detail {

template <class C>
GODWIT_INLINE inline C swiglu_value(C gate, C up) {
  return gate / (1 + exp_of(-gate)) * up;
}

// The derivative with respect to gate, times dy. silu' = σ · (1 + gate · (1 - σ)) with σ = 1 / (1 + e⁻ᵍᵃᵗᵉ).
template <class C>
GODWIT_INLINE inline C swiglu_of_gate(C gate, C up, C dy) {
  const C sigmoid = 1 / (1 + exp_of(-gate));
  return dy * up * (sigmoid * (1 + gate * (1 - sigmoid)));
}

}  // namespace godwit::detail
