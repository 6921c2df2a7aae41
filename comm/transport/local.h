// The local transport: ranks are threads of one process and read each other's memory. Several ranks can share a GPU.
#pragma once
#include <chrono>
#include <functional>

#include "comm/group.h"
#include "comm/transport/placement.h"

namespace godwit {

struct LocalOptions {
  // Longest wait of a collective for its slowest peer, without the time that RunControl::busy() marks. The training
  // programs set 60 s, because they mark loading and writing.
  std::chrono::milliseconds timeout{300'000};
  int threads_per_rank = 0;                    // 0: cores / ranks, at least 1
  Placement placement = {};                    // all ranks run on one machine
};

// Runs body(communicator) on one thread per rank, each with a separate context on its device. Returns when all threads
// have finished. A rank that throws aborts its groups, so that the others also stop. The first failure is rethrown.
// With several ranks, the text of an Error, but not of a derived class, begins with "rank r: ".
void run_local(const Topology& topology, const std::function<void(Communicator&)>& body,
               const LocalOptions& options = {});

}  // namespace godwit
