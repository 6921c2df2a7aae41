// The library that computes float32 and bfloat16 convolutions and matrix products in this build.
#pragma once
#include <string>

namespace godwit {

std::string kernel_library();  // name, version and instruction set: "oneDNN 2.6.3, avx512_core_bf16", or "Eigen 3.4.0"
// Whether the library computes bfloat16 products faster than float32 products on this processor, which requires AMX or
// fast AVX512_BF16. If not, operations convert bfloat16 tensors to float32 and compute in float32.
bool fast_bf16();

}  // namespace godwit
