// Launcher: rank and world size as set by mpirun or srun, and the resulting topology. Does not need MPI.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/topology.h"

namespace godwit {

// Values of a launcher's environment variables.
struct Launcher {
  std::string name;         // "mpirun", "srun"
  int rank = 0, world = 1;  // rank of this process; number of processes
};

// Reads the environment; nullopt if no launcher started the process. Throws if the values are invalid.
std::optional<Launcher> launcher();
bool under_launcher();  // whether launcher() has a value

// Completes `given` for `world` ranks; a field of 0 is unset. {0, 0} is returned unchanged, for topology_of_hosts().
// Throws an Error naming --nodes and --workers-per-node if they do not match `world`.
Topology fit_topology(Topology given, int world);

// hosts[r] is the host name of rank r. One node per host. Throws unless all hosts have equally many ranks, numbered
// host by host.
Topology topology_of_hosts(const std::vector<std::string>& hosts);

// Describes the first node whose ranks run on different hosts; empty if there is none. Such nodes are allowed, for
// emulation.
std::string spanning_node(const Topology& topology, const std::vector<std::string>& hosts);

}  // namespace godwit
