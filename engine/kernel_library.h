// The library that computes float32 and bfloat16 convolutions and matrix products in this build.
#pragma once
#include <string>

namespace godwit {

std::string kernel_library();  // "oneDNN 2.6.3, avx512_core_bf16" or "Eigen 3.4.0"
bool native_bf16();            // whether the library uses the processor's bfloat16 instructions (AVX512_BF16, AMX)

}  // namespace godwit
