// Row-major matrix products through cuBLASLt.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// Strides in elements: `row` between the stored rows of a matrix, `entry` between the matrices of a batch. -1:
// adjacent.
struct MatrixStrides {
  int64_t row = -1, entry = -1;
  bool adjacent() const { return row < 0 && entry < 0; }
};

// The product c [m, n] = op(a) [m, k] · op(b) [k, n] (+ c), computed for each of `entries` matrices. op transposes if
// its flag is set. A matrix with strides begins at the first element of its tensor, and the tensor's shape is not used.
struct CudaProduct {
  const char* operation;  // name for error messages
  bool trans_a, trans_b;
  int64_t m, n, k, entries = 1;
  bool add = false;  // accumulate into c
  MatrixStrides of_a = {}, of_b = {}, of_c = {};
  int64_t vector_stride = 0;  // used by multiply_with_epilogue(): elements between the vectors of two entries
};

// Computes the product. a and b have the same type: float32, bfloat16 or float64. c has that type, or float32 for
// bfloat16 inputs. Sums are in float32, or in float64 for float64 inputs. cuBLASLt's algorithm is chosen once per
// shape.
void multiply(Cuda device, const CudaProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

// The operation fused with a product. Its vector has c's type.
enum class Epilogue {
  none,
  add_bias,  // c += vector [n]
  sum_a,     // vector [m] = sums of op(a) over k; a must be transposed
};

// Like multiply() for float32 or bfloat16, with an epilogue. Returns false without any effect if cuBLASLt does not
// support the epilogue for this product.
bool multiply_with_epilogue(Cuda device, Epilogue epilogue, const CudaProduct& product, const Tensor& a,
                            const Tensor& b, const Tensor& vector, const Tensor& c);

}  // namespace godwit
