// Which library computes float32 convolutions and matrix products in this build.
#pragma once
#include <string>

namespace godwit {

std::string kernel_library();  // "oneDNN 2.6.3, avx512_core_bf16" or "Eigen 3.4.0"

}  // namespace godwit
