#include "apps/config/build_identity.h"

#include "comm/transport/mpi.h"
#include "engine/check.h"
#include "engine/kernel_library.h"

namespace godwit::apps {

std::string build_identity() {
  const std::string kernels = kernel_library();  // after a comma: instructions, which may differ between hosts
  std::string text = std::string("sources ") + source_hash() + ", " + kernels.substr(0, kernels.find(','));
  if (const std::string mpi = mpi_library(); !mpi.empty()) text += ", " + mpi;
  return text;
}

std::string version_line(const std::string& program) {
#ifdef GODWIT_HAS_CUDA
  constexpr const char* kCuda = ", CUDA";
#else
  constexpr const char* kCuda = "";
#endif
  return detail::concat(program, " (Godwit ", version(), "), ", build_identity(), kCuda);
}

}  // namespace godwit::apps
