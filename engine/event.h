// Event: orders work between the streams of threads that share a GPU's memory.
#pragma once
#include <memory>

namespace godwit {

// A point in a thread's stream. Empty on the CPU, where every call completes before it returns.
class Event {
 public:
  Event() = default;  // empty: nothing to wait for
  // Records an event after all work queued so far on the calling thread's stream.
  static Event record();
  // Makes the calling thread's stream wait for this event (cudaStreamWaitEvent). The host waits only if the thread has
  // no stream.
  void wait() const;
  void block() const;  // blocks the host until the event; throws if work of the rank was aborted

 private:
  std::shared_ptr<void> event_;
};

}  // namespace godwit
