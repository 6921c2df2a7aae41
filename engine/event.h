// Event: order between the streams of threads that share a GPU's memory.
#pragma once
#include <memory>

namespace godwit {

// A point in a thread's stream. On the CPU there is none: a call has ended when it returns.
class Event {
 public:
  Event() = default;  // nothing to wait for
  static Event record();  // what the calling thread has asked of its stream so far
  // What the calling thread asks of its stream from now on comes after it. The host waits only where the thread has no
  // stream.
  void wait() const;

 private:
  std::shared_ptr<void> event_;
};

}  // namespace godwit
