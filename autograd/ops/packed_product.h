// PackedProduct: products of many matrices with one weight matrix, which is packed once.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// Computes x · wᵀ if `transposed`, otherwise x · w. w is float32, or float64 for float64 x, and must not change.
class PackedProduct {
 public:
  // Packs w for x with `rows` rows of type `type`. Products with another number of rows may be slower.
  PackedProduct(const Tensor& w, bool transposed, int64_t rows, DType type);
  // y = x · wᵀ or x · w. On a GPU, x · wᵀ may be written to the first columns of a wider y.
  void operator()(const Tensor& x, const Tensor& y) const;

 private:
  Tensor w_, packed_;
  bool transposed_;
  int64_t rows_;
};

}  // namespace godwit
