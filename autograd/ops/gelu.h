// gelu: y = x · Φ(x) for a tensor of any shape, where Φ is the normal CDF (Hendrycks and Gimpel 2016).
#pragma once
#include "autograd/var.h"

namespace godwit {

enum class Gelu {  // formulas of Φ
  erf,   // Φ(x) = (1 + erf(x / √2)) / 2
  tanh,  // approximation: (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2
};

// Errors of the erf form in float32: a relative error of at most 6 · 2⁻²⁴ for the value, also in the negative tail, and
// an absolute error of at most 1.5 · 2⁻²³ for the derivative. Values of a magnitude below 2⁻¹²² may become 0.
void gelu_forward(Cpu, const Tensor& x, Gelu form, const Tensor& y);
void gelu_forward(Cuda, const Tensor& x, Gelu form, const Tensor& y);
void gelu_backward(Cpu, const Tensor& x, const Tensor& dy, Gelu form, const Tensor& dx);  // dx may be dy
void gelu_backward(Cuda, const Tensor& x, const Tensor& dy, Gelu form, const Tensor& dx);

namespace ops {

// gelu of x, in the tanh form if `tanh`, otherwise in the erf form.
Var gelu(const Var& x, bool tanh = false);

}  // namespace ops
}  // namespace godwit
