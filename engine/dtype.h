// Element types, their C++ counterparts, and the dispatch from element type to C++ type.
#pragma once
#include <cstdint>
#include <ostream>

#include "engine/check.h"
#include "engine/half.h"

namespace godwit {

enum class DType { f32, bf16, f16, f64, i32, i64, u8, u32 };  // element types

int64_t size_of(DType dtype);                              // bytes per element
const char* name_of(DType dtype);                          // "float32", "bfloat16", …
std::ostream& operator<<(std::ostream& out, DType dtype);  // writes name_of(dtype)

// The type of parameters and sums for activations of type `dtype`: float32 for the 16-bit types, otherwise `dtype`.
DType compute_dtype(DType dtype);

template <class T>
struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<bf16> { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<f16> { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<uint32_t> { static constexpr DType value = DType::u32; };

template <class T>
constexpr DType dtype_of = DTypeOf<T>::value;  // element type of a C++ type

// Calls f.template operator()<T>() with the C++ type of a float32 or float64 tensor. Throws an Error for other types.
//   dispatch_real(x.dtype(), "relu", [&]<class T>() { … });
template <class F>
auto dispatch_real(DType dtype, const char* operation, F&& f) {
  switch (dtype) {
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    default: fail(operation, ": takes float32 or float64, not ", dtype);
  }
}

// Like dispatch_real(), for kernels that also take bfloat16 activations. Such kernels compute in compute_t<T>.
template <class F>
auto dispatch_float(DType dtype, const char* operation, F&& f) {
  switch (dtype) {
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f64: return f.template operator()<double>();
    default: fail(operation, ": takes float32, bfloat16 or float64, not ", dtype);
  }
}

}  // namespace godwit
