#include "engine/profile.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else  // NVTX may be missing from a partial CUDA toolkit; CMake reports it
static int nvtxRangePushA(const char*) { return 0; }
static int nvtxRangePop() { return 0; }
#endif

#include <cstdio>

namespace godwit {

ProfileRange::ProfileRange(const char* name) { nvtxRangePushA(name); }

ProfileRange::ProfileRange(const char* name, int number) {
  char text[64];
  std::snprintf(text, sizeof(text), "%s %d", name, number);
  nvtxRangePushA(text);
}

ProfileRange::~ProfileRange() { nvtxRangePop(); }

}  // namespace godwit
