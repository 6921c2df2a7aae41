// Only for linear*.cpp and packed_product.cpp: kernels of the build's library for float32 or bfloat16 x and y; w, bias
// and dw are float32.
#pragma once
#include "engine/tensor.h"

namespace godwit::detail {

// Return false, without any effect, if the library has no kernel that is faster than gemm().
bool library_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
bool library_linear_backward_data(const Tensor& dy, const Tensor& w, const Tensor& dx);
bool library_linear_backward_weights(const Tensor& x, const Tensor& dy, const Tensor& dw);

// Packs w for several products x · wᵀ if `transposed`, otherwise x · w, where x has `rows` rows of type `type`. The
// result is undefined if the library has no kernel that is faster than gemm().
Tensor library_linear_pack(const Tensor& w, bool transposed, int64_t rows, DType type);
// y = x · wᵀ or x · w; `packed` is the result of library_linear_pack() for w and `rows`. Returns false, without any
// effect, if x has another number of rows, for which the library needs another layout.
bool library_linear_packed(const Tensor& x, const Tensor& w, const Tensor& packed, bool transposed, int64_t rows,
                           const Tensor& y);

}  // namespace godwit::detail
