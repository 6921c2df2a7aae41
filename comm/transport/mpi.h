// The MPI transport: ranks are processes started by mpirun or srun, on one host or many.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "comm/group.h"
#include "comm/transport/placement.h"

namespace godwit {

struct MpiOptions {
  // Longest time for all ranks to start, and for a message to arrive. The training programs set 60 s (LocalOptions).
  std::chrono::milliseconds timeout{300'000};
  int threads_per_rank = 0;                    // 0: cores available to this host's ranks / their number, at least 1
  // Called on rank 0 with lines about the launch: library, ranks, hosts, and warnings about the placement.
  std::function<void(const std::string&)> note = nullptr;
  Placement placement = {};  // placement of the ranks on each host
};

// Thrown by run_mpi() after a failure, on the ranks that do not report the cause.
class PeerFailed : public Error {
 public:
  using Error::Error;  // message and source location
};

std::string mpi_library();  // name and version: "Open MPI v4.1.4"; empty without MPI
bool mpi_built();  // whether this build has MPI

// Runs body(communicator) as the rank of this process. `given` is as for fit_topology(); {0, 0}: one node per host.
// Returns when the body has finished on all ranks. Sums match run_local() bit for bit, except through NCCL.
//
// If the body fails on some ranks, every rank leaves its collectives. One rank then throws an Error with all different
// error texts (prefixed "rank r: " or "rank r on HOST: "); the others throw PeerFailed. If a process has ended, one
// rank prints the error and all ranks throw PeerFailed. A process must then print its Error, but not PeerFailed, and
// exit: the first process that exits kills the others (MPI_Abort).
void run_mpi(Topology given, const std::function<void(Communicator&)>& body, const MpiOptions& options = {});

}  // namespace godwit
