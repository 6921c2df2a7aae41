// The clock for durations.
#pragma once
#include <chrono>

namespace godwit {

using Clock = std::chrono::steady_clock;  // monotonic

inline double seconds_since(Clock::time_point start) {  // elapsed seconds since `start`
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace godwit
