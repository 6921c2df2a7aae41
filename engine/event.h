// Event: orders work between the streams of threads that share a GPU's memory.
#pragma once
#include <memory>

namespace godwit {

// A point in a thread's stream. An event is empty on the CPU, where every call completes before it returns.
class Event {
 public:
  Event() = default;  // empty: wait() and block() return immediately
  // Records an event after all work that is queued on the calling thread's stream.
  static Event record();
  // Makes the calling thread's stream wait for this event (cudaStreamWaitEvent). If the thread has no stream, the host
  // waits.
  void wait() const;
  void block() const;  // blocks the host until the event has completed; throws if work of the rank was aborted

 private:
  std::shared_ptr<void> event_;
};

}  // namespace godwit
