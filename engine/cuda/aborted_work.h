// AbortedWork: the reason why queued work of a rank's streams was aborted.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

#include "engine/check.h"

namespace godwit {

// Shared by the contexts of a rank's threads on one GPU. Work queued behind aborted work computes wrong values.
// Therefore, after set(), every wait of the host for these streams throws. Thread-safe.
class AbortedWork {
 public:
  // Sets the reason. Must be called before the abort. Later reasons are ignored.
  void set(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) reason_ = reason;
    aborted_ = true;
  }
  void check() const {  // throws an Error with the reason
    if (!aborted_) return;
    const std::lock_guard lock(mutex_);
    fail(reason_);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> aborted_{false};
  std::string reason_;
};

}  // namespace godwit
