// StepClock: the time of a step's exchange, and the part that does not overlap with computation.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>

#include "engine/clock.h"

namespace godwit {

// Activity of a step's exchange.
enum class Activity : uint8_t { none, compression, communication, update };

// Sums the time of each activity, and the part of it in which the computing thread waited. The exchange calls enter(),
// the computing thread set_waiting(); one thread may do both. Thread-safe.
class StepClock {
 public:
  using Time = Clock::time_point;  // a point in time

  void begin(Time now = Clock::now());                     // of a step: all times are 0 again
  Activity enter(Activity next, Time now = Clock::now());  // returns the activity that ends
  bool set_waiting(bool waits, Time now = Clock::now());   // returns the former value
  double seconds(Activity activity) const;                 // of this step, up to the last call above
  double exposed(Activity activity) const;                 // part in which the computing thread waited

 private:
  void add(Time now);

  mutable std::mutex mutex_;
  Activity activity_ = Activity::none;
  bool waits_ = false;
  Time since_{};
  std::array<std::array<double, 2>, 4> seconds_{};  // by activity, and whether the computing thread waited
};

// The computing thread waits while this object lives.
class WaitingScope {
 public:
  // Marks the computing thread as waiting.
  explicit WaitingScope(StepClock& clock) : clock_(clock), before_(clock.set_waiting(true)) {}
  ~WaitingScope() { clock_.set_waiting(before_); }
  WaitingScope(const WaitingScope&) = delete;
  WaitingScope& operator=(const WaitingScope&) = delete;

 private:
  StepClock& clock_;
  bool before_;
};

}  // namespace godwit
