// ProfileRange: a named range on the calling thread's timeline, in its Trace and in a GPU profiler (Nsight Systems).
#pragma once
#include <cstdint>
#include <string_view>

#include "engine/clock.h"

namespace godwit {

class Trace;

// A scoped range. Without a Trace, the cost is one read of the context and, in a CUDA build, an NVTX range.
class [[maybe_unused]] ProfileRange {
 public:
  enum class Of : uint8_t { step, run };  // when a Trace records the range: while it records steps, or always

  // `name` must outlive the range. `number`: a bucket or step, appended to the name ("exchange 3"). -1: none.
  explicit ProfileRange(std::string_view name, int64_t number = -1, Of of = Of::step);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  Trace* trace_ = nullptr;  // null: the range is not recorded
  std::string_view name_;
  int64_t number_;
  Clock::time_point begin_{};
};

// Begins a range in a GPU profiler. No effect in a CPU-only build.
void begin_nvtx_range(std::string_view name, int64_t number);
void end_nvtx_range();  // ends the calling thread's innermost range

}  // namespace godwit
