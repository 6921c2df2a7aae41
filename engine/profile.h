// ProfileRange: a named range on the calling thread's timeline in a GPU profiler (Nsight Systems).
#pragma once

namespace godwit {

// Scoped NVTX range. Costs one indirect call when no profiler is attached and nothing in a CPU-only build.
class [[maybe_unused]] ProfileRange {
 public:
#ifdef GODWIT_HAS_CUDA
  explicit ProfileRange(const char* name);
  ProfileRange(const char* name, int number);  // "exchange 3"
  ~ProfileRange();
#else
  explicit ProfileRange(const char*, int = 0) {}  // CPU-only build: no effect
  ~ProfileRange() {}
#endif
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace godwit
