#include "autograd/ops/linear.h"

#include "autograd/ops/bias.h"
#include "autograd/ops/kernel_weights.h"
#include "engine/cuda/blas.h"

namespace godwit {
namespace {

// Whether the library may fuse bias or sums with the product; cuBLASLt documents no fusion for float64.
bool in_one_call(const Tensor& vector, const Tensor& x) { return vector.defined() && x.dtype() != DType::f64; }

}  // namespace

void linear_forward(Cuda device, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  CudaProduct product{"linear", false, true, x.dim(0), w.dim(0), w.dim(1)};
  const Tensor weights = kernel_weights(w, x.dtype());
  const Tensor b = bias.defined() ? kernel_weights(bias, x.dtype()) : bias;
  if (in_one_call(b, x) && multiply_and(device, BesideProduct::add_bias, product, x, weights, b, y)) return;
  if (b.defined()) bias_forward(device, b, y);
  product.add = b.defined();
  multiply(device, product, x, weights, y);
}

void linear_backward_data(Cuda device, const Tensor& dy, const Tensor& w, const Tensor& dx, bool add) {
  multiply(device, {"linear", false, false, dy.dim(0), w.dim(1), w.dim(0), 1, add}, dy, kernel_weights(w, dy.dtype()),
           dx);
}

void linear_backward_weights(Cuda device, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& db) {
  const CudaProduct product{"linear", true, false, dw.dim(0), dw.dim(1), x.dim(0)};
  if (in_one_call(db, x) && multiply_and(device, BesideProduct::sum_a, product, dy, x, db, dw)) return;
  if (db.defined()) bias_backward(device, dy, db);
  multiply(device, product, dy, x, dw);
}

}  // namespace godwit
