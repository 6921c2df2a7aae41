// The local transport: ranks are threads of one process and read each other's memory, on a GPU too: several ranks can
// share one.
#pragma once
#include <chrono>
#include <functional>

#include "comm/group.h"
#include "comm/transport/placement.h"

namespace godwit {

struct LocalOptions {
  std::chrono::milliseconds timeout{300'000};  // how long a collective waits for its slowest peer
  int threads_per_rank = 0;                    // 0: cores / ranks, at least one
  Placement placement = {};                    // all ranks are on one machine
};

// Runs body(communicator) on one thread per rank, each with a context of its own on its device, and returns when all
// have ended. A rank that throws aborts its groups, so the others end too; the first failure is rethrown, its text
// beginning with "rank r: " when there are several ranks.
void run_local(const Topology& topology, const std::function<void(Communicator&)>& body,
               const LocalOptions& options = {});

}  // namespace godwit
