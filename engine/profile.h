// ProfileRange: a part of the work, by name on its thread's line in a profiler of GPUs (Nsight Systems).
#pragma once

namespace godwit {

// From its making to its end. Without a profiler it costs a call through a pointer, in a build without CUDA nothing.
class [[maybe_unused]] ProfileRange {
 public:
#ifdef GODWIT_HAS_CUDA
  explicit ProfileRange(const char* name);
  ProfileRange(const char* name, int number);  // "exchange 3"
  ~ProfileRange();
#else
  explicit ProfileRange(const char*, int = 0) {}
  ~ProfileRange() {}
#endif
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace godwit
