// Launcher: rank and world size as set by mpirun or srun, and the resulting topology. Does not require MPI.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/topology.h"

namespace godwit {

// Values from a launcher's environment variables.
struct Launcher {
  std::string name;         // name: "mpirun" or "srun"
  int rank = 0, world = 1;  // rank of this process; number of processes
};

// Reads the environment. Returns nullopt if no launcher started the process. Throws if the values are invalid.
std::optional<Launcher> launcher();
bool under_launcher();  // whether launcher() has a value

// Completes `given` for `world` ranks; a field of 0 is unset. {0, 0} is returned unchanged, for topology_of_hosts(). If
// the fields do not match `world`, throws an Error that names --nodes and --workers-per-node.
Topology fit_topology(Topology given, int world);

// hosts[r] is the host name of rank r. Each host becomes one node. Throws unless all hosts have equally many ranks,
// numbered host by host.
Topology topology_of_hosts(const std::vector<std::string>& hosts);

// Describes the first node whose ranks run on different hosts. Returns an empty string if there is none. Such nodes are
// allowed, for emulation.
std::string spanning_node(const Topology& topology, const std::vector<std::string>& hosts);

}  // namespace godwit
