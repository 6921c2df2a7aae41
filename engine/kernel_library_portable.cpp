#include <Eigen/Core>

#include "engine/kernel_library.h"

namespace godwit {

std::string kernel_library() {
  return "Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

bool fast_bf16() { return false; }

}  // namespace godwit
