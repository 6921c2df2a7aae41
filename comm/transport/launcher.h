// Launcher: what mpirun or srun told this process about itself, and the topology that follows from it. Needs no MPI.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/topology.h"

namespace godwit {

struct Launcher {
  std::string name;  // "mpirun", "srun"
  int rank = 0, world = 1;
};

// From the environment; nothing when the process was started by hand. Throws when the numbers there make no sense.
std::optional<Launcher> launcher();
bool under_launcher();

// `given`: 0 stands for "not said". What was not said follows from the number of ranks; {0, 0} stays as it is: the
// hosts decide. Throws an Error naming --nodes and --workers-per-node when they do not give `world` ranks.
Topology fit_topology(Topology given, int world);

// hosts[r]: where rank r runs. One node each host; throws unless each holds equally many ranks, numbered host by host.
Topology topology_of_hosts(const std::vector<std::string>& hosts);

// A line that names the first node whose ranks run on several hosts; empty when there is none. Legal: nodes may be
// emulated.
std::string spanning_node(const Topology& topology, const std::vector<std::string>& hosts);

}  // namespace godwit
