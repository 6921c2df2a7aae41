// RunTrace: chooses the steps of a run to trace, and gathers the timelines of all ranks for trace.json.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/group.h"
#include "engine/trace.h"

namespace godwit::apps {

class RunTrace {
 public:
  // The run has the steps first + 1 … last. Traces `steps` steps after the first five, or earlier ones if the run is
  // shorter. `trace`: timeline of the calling rank. If it is null, begin_step() and end_step() have no effect, and
  // gather() must not be called.
  RunTrace(std::shared_ptr<Trace> trace, int64_t first, int64_t last, int64_t steps);

  bool enabled() const { return trace_ != nullptr; }
  void begin_step(int64_t step);                  // call before each step
  bool end_step(int64_t step);                    // call after each step; returns true if this was the last traced step
  std::string contents(int64_t last_step) const;  // "timeline of steps 6 to 25"; last_step: last step of the run so far
  // Collective. Returns the events of all ranks on rank 0, as JSON in Chrome's trace event format, and "" on other
  // ranks. Times refer to rank 0's clock.
  std::string gather(Communicator& comm, int64_t last_step);

 private:
  std::shared_ptr<Trace> trace_;
  int64_t begin_ = 0, end_ = 0;  // first and last traced step
};

}  // namespace godwit::apps
