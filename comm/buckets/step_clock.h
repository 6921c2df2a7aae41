// StepClock: the time of a step's exchange, and the part of it that does not overlap with computation.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>

#include "engine/clock.h"

namespace godwit {

// Activity of a step's exchange.
enum class Activity : uint8_t { none, compression, communication, update };

// Sums the time of each activity, and the part in which the computing thread waited. The exchange calls enter(); the
// computing thread calls set_waiting(). One thread may do both. Thread-safe.
class StepClock {
 public:
  using Time = Clock::time_point;  // a point in time

  void begin(Time now = Clock::now());                     // begins a step: sets all times to 0
  Activity enter(Activity next, Time now = Clock::now());  // returns the activity that ends
  bool set_waiting(bool waits, Time now = Clock::now());   // returns the previous value
  double seconds(Activity activity) const;                 // seconds in this step, up to the last of the calls above
  double exposed(Activity activity) const;                 // seconds in which the computing thread waited

 private:
  void add(Time now);

  mutable std::mutex mutex_;
  Activity activity_ = Activity::none;
  bool waits_ = false;
  Time since_{};
  std::array<std::array<double, 2>, 4> seconds_{};  // indices: activity, and whether the computing thread waited
};

// Marks the computing thread as waiting for a scope.
class WaitingScope {
 public:
  // Sets the state to waiting; the destructor restores the previous state.
  explicit WaitingScope(StepClock& clock) : clock_(clock), before_(clock.set_waiting(true)) {}
  ~WaitingScope() { clock_.set_waiting(before_); }
  WaitingScope(const WaitingScope&) = delete;
  WaitingScope& operator=(const WaitingScope&) = delete;

 private:
  StepClock& clock_;
  bool before_;
};

}  // namespace godwit
