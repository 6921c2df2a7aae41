#include "engine/dtype.h"

namespace godwit {

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64: case DType::i64: return 8;
    case DType::f32: case DType::i32: case DType::u32: return 4;
    case DType::bf16: case DType::f16: return 2;
    case DType::u8: return 1;
  }
  fail("dtype: unknown value ", static_cast<int>(dtype));
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::f64: return "float64";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
    case DType::u32: return "uint32";
  }
  fail("dtype: unknown value ", static_cast<int>(dtype));
}

DType compute_dtype(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype; }

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace godwit
