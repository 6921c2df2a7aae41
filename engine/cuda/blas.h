// Matrix products of row-major matrices through cuBLASLt.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// c [m, n] = op(a) [m, k] · op(b) [k, n] (+ c) for each of `entries` pairs, one after another in memory;
// op transposes when its flag is set.
struct CudaProduct {
  const char* operation;  // for messages
  bool trans_a, trans_b;
  int64_t m, n, k, entries = 1;
  bool add = false;  // to what is in c
};

// a and b have one type: float32, bfloat16 or float64; c has it too, or is float32 beside bfloat16. The sums are
// float32's, or float64's. The library's algorithm is chosen once for a shape.
void multiply(Cuda device, const CudaProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

enum class BesideProduct {
  none,
  add_bias,  // c += vector [n]
  sum_a,     // vector [m] becomes the sums of op(a) over k; a is transposed
};

// multiply() of one entry in 32 or 16 bits, and in the same call that, with a vector of c's type. False, with nothing
// done, where the library has no way.
bool multiply_and(Cuda device, BesideProduct beside, const CudaProduct& product, const Tensor& a, const Tensor& b,
                  const Tensor& vector, const Tensor& c);

}  // namespace godwit
