#include "comm/buckets/step_clock.h"

#include <chrono>
#include <utility>

namespace godwit {

void StepClock::begin(Time now) {
  const std::lock_guard lock(mutex_);
  activity_ = Activity::none;
  waits_ = false;
  since_ = now;
  seconds_ = {};
}

Activity StepClock::enter(Activity next, Time now) {
  const std::lock_guard lock(mutex_);
  add(now);
  return std::exchange(activity_, next);
}

bool StepClock::set_waiting(bool waits, Time now) {
  const std::lock_guard lock(mutex_);
  add(now);
  return std::exchange(waits_, waits);
}

double StepClock::seconds(Activity activity) const {
  const std::lock_guard lock(mutex_);
  const auto& parts = seconds_[static_cast<size_t>(activity)];
  return parts[0] + parts[1];
}

double StepClock::exposed(Activity activity) const {
  const std::lock_guard lock(mutex_);
  return seconds_[static_cast<size_t>(activity)][1];
}

// Two threads may read the clock in one order and call add() in the other; `now` is then before since_.
void StepClock::add(Time now) {
  if (now <= since_) return;
  seconds_[static_cast<size_t>(activity_)][waits_] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
}

}  // namespace godwit
