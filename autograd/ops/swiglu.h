// swiglu: y = silu(gate) · up, element by element, with silu(x) = x / (1 + e⁻ˣ) (Shazeer 2020).
#pragma once
#include "autograd/var.h"

namespace godwit {

// All tensors have the same shape and type.
void swiglu_forward(Cpu, const Tensor& gate, const Tensor& up, const Tensor& y);
void swiglu_forward(Cuda, const Tensor& gate, const Tensor& up, const Tensor& y);
// d_up may be dy.
void swiglu_backward(Cpu, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& d_gate,
                     const Tensor& d_up);
void swiglu_backward(Cuda, const Tensor& gate, const Tensor& up, const Tensor& dy, const Tensor& d_gate,
                     const Tensor& d_up);

namespace ops {

// gate and up have equal shape and type: float32, bfloat16 or float64. Backward keeps gate and up, but not silu(gate).
Var swiglu(const Var& gate, const Var& up);

}  // namespace ops
}  // namespace godwit
