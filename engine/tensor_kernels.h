// Kernels of tensor.cpp and tensor.cu. Other files do not include this header.
#pragma once
#include <type_traits>
#include <utility>

#include "engine/inline.h"
#include "engine/tensor.h"

namespace godwit::detail {

void zero(Cpu, const Tensor& x);
void fill(Cpu, const Tensor& x, double value);
void convert(Cpu, const Tensor& x, const Tensor& y);  // y = x, converted to y's type
void copy(Cpu, const Tensor& x, const Tensor& y);     // y = x, byte for byte
void zero(Cuda, const Tensor& x);
void fill(Cuda, const Tensor& x, double value);
void convert(Cuda, const Tensor& x, const Tensor& y);
void copy(Cuda, const Tensor& x, const Tensor& y);  // one of the two may be on the CPU

// Calls f.operator()<T>() for every numeric type.
template <class F>
auto dispatch_numeric(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32: return f.template operator()<int32_t>();
    case DType::i64: return f.template operator()<int64_t>();
    case DType::u8: return f.template operator()<uint8_t>();
    case DType::u32: return f.template operator()<uint32_t>();
    case DType::f16: return f.template operator()<f16>();
    case DType::bf16: return f.template operator()<bf16>();
    default: return dispatch_real(dtype, "tensor", std::forward<F>(f));
  }
}

// Converts through float32 if either type has 16 bits. Rounding a float64 twice adds an error below the 16-bit
// resolution.
template <class To, class From>
GODWIT_INLINE inline To converted(From value) {
  if constexpr (std::is_same_v<compute_t<To>, To>) return static_cast<To>(static_cast<compute_t<From>>(value));
  else return To(static_cast<float>(value));
}

}  // namespace godwit::detail
