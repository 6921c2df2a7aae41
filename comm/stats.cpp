#include "comm/stats.h"

namespace godwit {

void CommStats::add(std::string_view phase, int64_t bytes_intra, int64_t bytes_inter) {
  std::lock_guard lock(mutex_);
  auto found = phases_.find(phase);
  if (found == phases_.end()) found = phases_.emplace(phase, CommCount{}).first;
  found->second.bytes_intra += bytes_intra;
  found->second.bytes_inter += bytes_inter;
  ++found->second.calls;
}

void CommStats::add_time(std::string_view phase, double seconds) {
  std::lock_guard lock(mutex_);
  if (const auto found = phases_.find(phase); found != phases_.end()) found->second.seconds += seconds;
}

CommCount CommStats::phase(std::string_view name) const {
  std::lock_guard lock(mutex_);
  auto found = phases_.find(name);
  return found == phases_.end() ? CommCount{} : found->second;
}

std::map<std::string, CommCount> CommStats::phases() const {
  std::lock_guard lock(mutex_);
  return {phases_.begin(), phases_.end()};
}

CommCount CommStats::total() const {
  CommCount sum;
  for (const auto& [name, count] : phases()) {
    sum.bytes_intra += count.bytes_intra;
    sum.bytes_inter += count.bytes_inter;
    sum.calls += count.calls;
    sum.seconds += count.seconds;
  }
  return sum;
}

void CommStats::reset() {
  std::lock_guard lock(mutex_);
  phases_.clear();
}

void CommStats::restore(const std::map<std::string, CommCount>& phases) {
  std::lock_guard lock(mutex_);
  phases_ = {phases.begin(), phases.end()};
}

}  // namespace godwit
