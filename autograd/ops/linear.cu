#include "autograd/ops/linear.h"

#include "autograd/ops/bias.h"
#include "engine/cuda/blas.h"

namespace godwit {
namespace {

// Parameters beside bfloat16 activations are rounded to their type.
Tensor like(const Tensor& parameter, const Tensor& x) {
  return !parameter.defined() || parameter.dtype() == x.dtype() ? parameter : parameter.to(x.dtype());
}

}  // namespace

void linear_forward(Cuda device, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  CudaProduct product{"linear", false, true, x.dim(0), w.dim(0), w.dim(1)};
  if (bias.defined() && x.dtype() == DType::f64) {  // the library adds no bias of 64 bits
    bias_forward(device, bias, y);
    product.add = true;
    return multiply(device, product, x, w, Tensor(), y);
  }
  multiply(device, product, x, like(w, x), like(bias, x), y);
}

void linear_backward_data(Cuda device, const Tensor& dy, const Tensor& w, const Tensor& dx) {
  multiply(device, {"linear", false, false, dy.dim(0), w.dim(1), w.dim(0)}, dy, like(w, dy), Tensor(), dx);
}

void linear_backward_weights(Cuda device, const Tensor& x, const Tensor& dy, const Tensor& dw) {
  multiply(device, {"linear", true, false, dw.dim(0), dw.dim(1), x.dim(0)}, dy, x, Tensor(), dw);
}

}  // namespace godwit
