// Which library computes convolutions and matrix products of float32 and bfloat16 in this build.
#pragma once
#include <string>

namespace godwit {

std::string kernel_library();  // "oneDNN 2.6.3, avx512_core_bf16" or "Eigen 3.4.0"
bool native_bf16();            // it multiplies bfloat16 by instructions of this processor (AVX512_BF16, AMX)

}  // namespace godwit
