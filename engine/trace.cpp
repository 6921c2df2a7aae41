#include "engine/trace.h"

#include <algorithm>
#include <utility>

namespace godwit {

void Trace::name_thread(const std::string& name) {
  const std::lock_guard lock(mutex_);
  names_[static_cast<size_t>(row())] = name;
}

void Trace::add(TraceEvent event) {
  constexpr size_t kMost = 100'000;
  const std::lock_guard lock(mutex_);
  if (events_.size() >= kMost) {
    ++dropped_;
    return;
  }
  event.row = row();
  events_.push_back(std::move(event));
}

std::vector<TraceEvent> Trace::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::vector<std::string> Trace::rows() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

int64_t Trace::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

// The row of the calling thread; adds a row for a new thread.
int Trace::row() {
  const auto found = std::find(threads_.begin(), threads_.end(), std::this_thread::get_id());
  if (found != threads_.end()) return static_cast<int>(found - threads_.begin());
  threads_.push_back(std::this_thread::get_id());
  names_.push_back("thread " + std::to_string(threads_.size()));
  return static_cast<int>(threads_.size()) - 1;
}

}  // namespace godwit
