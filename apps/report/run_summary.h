// RunSummary: optimizer and exchange state, bytes and calls by phase and link level, and the time per step of a run.
#pragma once
#include <string>
#include <vector>

#include "apps/report/run_log.h"
#include "optim/data_parallel.h"

namespace godwit::apps {

struct RunSummary {
  struct State {
    std::string owner, name;     // "optimizer", "exchange" or "owner" (master weights); "m"
    std::vector<int64_t> bytes;  // bytes of each rank
  };
  struct Phase {
    std::string name;
    int64_t calls = 0;                         // maximum over the workers
    int64_t bytes_intra = 0, bytes_inter = 0;  // sum over the workers
    double seconds = 0;                        // mean over the workers
  };
  Topology topology;
  int64_t parameters = 0, steps = 0, skipped = 0;
  std::vector<State> state;   // ordered by the first rank that has the state
  std::vector<Phase> phases;  // by name
  TimeSplit step;             // mean over steps and workers

  double bytes_per_parameter(const State& part) const;  // mean over the ranks
  std::string table() const;
  std::string json() const;
};

// Collective; the result is complete only on rank 0. `times`: sums over this rank's `steps`. Counts all phases up to
// this call.
RunSummary gather_run_summary(Communicator& comm, const DataParallel& replica, int64_t steps, const TimeSplit& times);

}  // namespace godwit::apps
