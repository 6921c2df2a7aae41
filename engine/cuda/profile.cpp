#include "engine/profile.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else  // NVTX may be missing from a partial CUDA toolkit; CMake reports it
static int nvtxRangePushA(const char*) { return 0; }
static int nvtxRangePop() { return 0; }
#endif

#include <cstdio>

namespace godwit {

void begin_nvtx_range(std::string_view name, int64_t number) {
  char text[64];
  const int length = static_cast<int>(name.size());
  if (number < 0) std::snprintf(text, sizeof(text), "%.*s", length, name.data());
  else std::snprintf(text, sizeof(text), "%.*s %lld", length, name.data(), static_cast<long long>(number));
  nvtxRangePushA(text);
}

void end_nvtx_range() { nvtxRangePop(); }

}  // namespace godwit
