// Scheduler: overlaps the exchange and update of buckets with the backward pass that still fills the others.
#pragma once
#include <functional>
#include <vector>

#include "comm/bucket.h"
#include "engine/stream.h"

namespace godwit {

// Gradient hooks count each bucket down; full buckets are handed to `work` strictly in plan order, on the communication
// stream, while backward goes on. `work` exchanges the bucket and updates its parameters (nothing in backward reads a
// parameter once its gradient is complete). One backward() per step; outside of a step the hooks rest.
class Scheduler {
 public:
  // `buckets` must outlive the scheduler.
  Scheduler(Buckets& buckets, std::function<void(Bucket&)> work);
  ~Scheduler();

  void begin_step();  // before forward: gradients count as absent
  void
  finish_step();  // after backward: hands over what is left (unused parameters have gradient zero), waits, rethrows
  void wait();    // until the stream is idle; rethrows its error

  // Names of parameters without a gradient in the last step, in layout order.
  const std::vector<std::string>& unused() const { return unused_; }
  // Buckets of the last step that were handed over before backward had ended.
  int64_t overlapped() const { return overlapped_; }

 private:
  void arrived(size_t bucket, size_t slot);
  void launch_full();  // hands over the buckets that are next in order and complete
  void fill_unused();

  Buckets& buckets_;
  std::function<void(Bucket&)> work_;
  std::vector<std::vector<bool>> have_;  // per bucket and slot: its gradient is complete
  std::vector<int64_t> missing_;         // gradients a bucket still waits for
  int64_t next_ = 0;                     // bucket to hand over next
  int64_t overlapped_ = 0;
  bool in_step_ = false;
  std::vector<std::string> unused_;
  Stream stream_;
};

}  // namespace godwit
