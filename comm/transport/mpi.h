// The MPI transport: ranks are processes that mpirun or srun started, on one host or many.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "comm/group.h"
#include "comm/transport/placement.h"

namespace godwit {

struct MpiOptions {
  std::chrono::milliseconds timeout{300'000};  // of the start of all ranks, and of a collective without any message
  int threads_per_rank = 0;                    // 0: cores this host lends to its ranks / ranks, at least one
  // Called on rank 0 with a line about the launch: the library, ranks and hosts; what is odd about their placement.
  std::function<void(const std::string&)> note = nullptr;
  Placement placement = {};  // of the ranks of a host
};

// Thrown on a rank that has nothing to add: another rank failed and reports what happened.
class PeerFailed : public Error {
 public:
  using Error::Error;
};

bool mpi_built();  // this build has MPI

// Runs body(communicator) as this process' rank. `given` as in fit_topology(), {0, 0}: one node each host. Returns when
// the body has ended on all ranks. When it fails on some, every rank leaves its collectives, one rank throws an Error
// with the texts of all ("rank r: " in front), the others PeerFailed; all processes are then to end, and what still
// runs when the first of them does is killed (MPI_Abort). Sums are those of run_local, bit for bit, but for NCCL's.
void run_mpi(Topology given, const std::function<void(Communicator&)>& body, const MpiOptions& options = {});

}  // namespace godwit
