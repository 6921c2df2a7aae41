// Replaces the MPI transport in builds without MPI.
#include "comm/transport/mpi.h"

namespace godwit {

std::string mpi_library() { return ""; }

bool mpi_built() { return false; }

void run_mpi(Topology, const std::function<void(Communicator&)>&, const MpiOptions&) {
  fail("this build has no MPI: install it (Debian: libopenmpi-dev, openmpi-bin) and build again");
}

}  // namespace godwit
