// Row-major matrix products through cuBLASLt.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// c [m, n] = op(a) [m, k] · op(b) [k, n] (+ c), for each of `entries` consecutive matrices; op transposes if its flag
// is set.
struct CudaProduct {
  const char* operation;  // for messages
  bool trans_a, trans_b;
  int64_t m, n, k, entries = 1;
  bool add = false;  // accumulate into c
};

// a and b have the same type: float32, bfloat16 or float64. c has that type, or is float32 for bfloat16 inputs. Sums
// are in float32, or float64 for float64. The library's algorithm is chosen once per shape.
void multiply(Cuda device, const CudaProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

enum class BesideProduct {
  none,
  add_bias,  // c += vector [n]
  sum_a,     // vector [m] becomes the sums of op(a) over k; a is transposed
};

// Like multiply() for one entry in 32 or 16 bits, fused with the operation `beside` on a vector of c's type. Returns
// false, without any effect, if the library does not support it.
bool multiply_and(Cuda device, BesideProduct beside, const CudaProduct& product, const Tensor& a, const Tensor& b,
                  const Tensor& vector, const Tensor& c);

}  // namespace godwit
