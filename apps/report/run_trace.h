// RunTrace: chooses the traced steps of a run, and gathers the timelines of all ranks for trace.json.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/group.h"
#include "engine/trace.h"

namespace godwit::apps {

class RunTrace {
 public:
  // The run has the steps first + 1 … last. Traces `steps` of them after the first five; earlier ones if the run is
  // shorter. `trace`: timeline of the calling rank; null: every function does nothing.
  RunTrace(std::shared_ptr<Trace> trace, int64_t first, int64_t last, int64_t steps);

  bool enabled() const { return trace_ != nullptr; }
  void begin_step(int64_t step);                  // before each step
  bool end_step(int64_t step);                    // after it; true: this was the last traced step
  std::string contents(int64_t last_step) const;  // "timeline of steps 6 to 25"; last_step: of the run so far
  // Collective: events of all ranks as JSON in Chrome's trace event format, on rank 0; "" on other ranks. Times are of
  // rank 0's clock.
  std::string gather(Communicator& comm, int64_t last_step);

 private:
  std::shared_ptr<Trace> trace_;
  int64_t begin_ = 0, end_ = 0;  // first and last traced step
};

}  // namespace godwit::apps
