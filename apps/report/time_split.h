// TimeSplit: the time of steps, divided by activity.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

namespace godwit::apps {

// Seconds of one step, or sums over steps. See "Where the time goes" in docs/monitoring.md. The computing thread spends
// the first seven parts. Together with other(), they add up to `total`.
struct TimeSplit {
  double forward = 0, backward = 0, data_wait = 0;
  double exposed_compression = 0, exposed_communication = 0, exposed_update = 0, idle = 0;
  double compression = 0, communication = 0, update = 0;  // times of the exchange, hidden or exposed
  double total = 0;

  double computation() const { return forward + backward; }
  double exposed() const { return exposed_compression + exposed_communication + exposed_update; }
  double waiting() const { return exposed() + idle; }
  double other() const { return std::max(0.0, total - computation() - data_wait - waiting()); }
  double exchange() const { return compression + communication + update; }

  TimeSplit& operator+=(const TimeSplit& more);
};

// The members and their names.
inline constexpr std::array<std::pair<const char*, double TimeSplit::*>, 11> kTimeParts = {
    {{"forward", &TimeSplit::forward},
     {"backward", &TimeSplit::backward},
     {"data_wait", &TimeSplit::data_wait},
     {"exposed_compression", &TimeSplit::exposed_compression},
     {"exposed_communication", &TimeSplit::exposed_communication},
     {"exposed_update", &TimeSplit::exposed_update},
     {"idle", &TimeSplit::idle},
     {"compression", &TimeSplit::compression},
     {"communication", &TimeSplit::communication},
     {"update", &TimeSplit::update},
     {"total", &TimeSplit::total}}};

inline TimeSplit& TimeSplit::operator+=(const TimeSplit& more) {
  for (const auto& [name, part] : kTimeParts) this->*part += more.*part;
  return *this;
}

// Divides sums over `count` steps, which gives the mean.
inline TimeSplit operator/(TimeSplit sums, double count) {
  for (const auto& [name, part] : kTimeParts) sums.*part /= count;
  return sums;
}

}  // namespace godwit::apps
