// Kernels of the build's library for float32 or bfloat16 x and y; w, bias and dw are float32. Several weights are
// computed as one weight that has the rows of all weights, in order. Only linear*.{cpp,cu} and packed_product.cpp
// include this header.
#pragma once
#include <vector>

#include "autograd/ops/bias.h"
#include "engine/tensor.h"

namespace godwit::detail {

using Tensors = std::vector<Tensor>;

inline bool given(const Tensors& parts) { return !parts.empty() && parts[0].defined(); }

// Allocates memory for the rows of all parts.
inline Tensor room_for_parts(const Tensors& parts, DType type) {
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.dim(0);
  return {parts[0].shape().rank() == 1 ? Shape{rows} : Shape{rows, parts[0].dim(1)}, type, parts[0].device()};
}

// The rows of all parts, in order.
inline Tensor joined(const Tensors& parts) {
  if (parts.size() == 1) return parts[0];
  const Tensor all = room_for_parts(parts, parts[0].dtype());
  int64_t at = 0;
  for (const Tensor& part : parts) {
    all.range(at, part.numel()).copy_from(part);
    at += part.numel();
  }
  return all;
}

// The inverse of joined().
inline void split(const Tensor& all, const Tensors& parts) {
  int64_t at = 0;
  for (const Tensor& part : parts) {
    part.copy_from(all.range(at, part.numel()));
    at += part.numel();
  }
}

// kernel_weights() of each part, or of joined(parts). On a GPU, parts without current copies are rounded into one
// tensor.
inline Tensors kernel_parts(Cpu, const Tensors& parts, DType) { return parts; }
Tensors kernel_parts(Cuda, const Tensors& parts, DType type);

// bias_backward() for several biases.
template <class D>
void joined_bias_backward(D device, const Tensor& dy, const Tensors& db) {
  if (db.size() == 1) return bias_backward(device, dy, db[0]);
  const Tensor all({dy.dim(1)}, db[0].dtype(), dy.device());
  bias_backward(device, dy, all);
  split(all, db);
}

// These functions return false without any effect if the library has no kernel that is faster than gemm().
bool library_linear_forward(const Tensor& x, const Tensors& w, const Tensor& bias, const Tensor& y);
bool library_linear_backward_data(const Tensor& dy, const Tensors& w, const Tensor& dx);
bool library_linear_backward_weights(const Tensor& x, const Tensor& dy, const Tensors& dw);

// Packs w for several products: x · wᵀ if `transposed`, otherwise x · w. x has `rows` rows of type `type`. The result
// is undefined if the library has no kernel that is faster than gemm().
Tensor library_linear_pack(const Tensor& w, bool transposed, int64_t rows, DType type);
// y = x · wᵀ or x · w. `packed` is the result of library_linear_pack() for w and `rows`. Returns false without any
// effect if x has another number of rows for which the library needs another layout.
bool library_linear_packed(const Tensor& x, const Tensor& w, const Tensor& packed, bool transposed, int64_t rows,
                           const Tensor& y);

}  // namespace godwit::detail
