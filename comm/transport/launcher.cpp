#include "comm/transport/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engine/excerpt.h"

namespace godwit {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  int value = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  check(error == std::errc() && stop == end && value >= 0, "launcher: ", variable, "='", excerpt(text),
        "', expected a non-negative integer");
  return value;
}

// Environment variables that a launcher sets in every process.
struct Convention {
  const char *name, *rank, *world;
};
constexpr Convention kConventions[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},  // Open MPI
    {"mpirun", "PMI_RANK", "PMI_SIZE"},                          // MPICH, Intel MPI, srun --mpi=pmi2
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},  // srun --mpi=pmix; in a batch script the latter is unset
};

std::string ranks_text(int world) { return detail::concat(world, world == 1 ? " rank" : " ranks"); }

}  // namespace

std::optional<Launcher> launcher() {
  for (const Convention& convention : kConventions) {
    const std::optional<int> rank = number_in(convention.rank), world = number_in(convention.world);
    if (!rank || !world) continue;
    check(*rank < *world, "launcher: ", convention.rank, "=", *rank, ", but ", convention.world, "=", *world);
    if (convention.name == std::string("srun") && *world == 1) continue;  // looks like an interactive srun step
    return Launcher{convention.name, *rank, *world};
  }
  return std::nullopt;
}

bool under_launcher() { return launcher().has_value(); }

Topology fit_topology(Topology given, int world) {
  const std::string began = "the launcher started " + ranks_text(world) + ", but ";
  if (given.nodes > 0 && given.workers_per_node > 0) {
    check(static_cast<int64_t>(given.nodes) * given.workers_per_node == world, began, "--nodes ", given.nodes,
          " × --workers-per-node ", given.workers_per_node, " are ",
          static_cast<int64_t>(given.nodes) * given.workers_per_node, "; make them equal");
    return given;
  }
  if (given.nodes > 0) {
    check(world % given.nodes == 0, began, "--nodes ", given.nodes, " does not divide ", world,
          "; start a multiple of ", given.nodes, ", or use another --nodes");
    return {given.nodes, world / given.nodes};
  }
  if (given.workers_per_node > 0) {
    check(world % given.workers_per_node == 0, began, "--workers-per-node ", given.workers_per_node,
          " does not divide ", world, "; start a multiple of ", given.workers_per_node,
          ", or use another --workers-per-node");
    return {world / given.workers_per_node, given.workers_per_node};
  }
  return {0, 0};
}

Topology topology_of_hosts(const std::vector<std::string>& hosts) {
  std::vector<std::string> distinct = hosts;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const int world = static_cast<int>(hosts.size()), nodes = static_cast<int>(distinct.size());
  std::string counts;
  for (const std::string& host : distinct)
    counts += detail::concat(counts.empty() ? "" : ", ", excerpt(host), " has ",
                             std::count(hosts.begin(), hosts.end(), host));
  for (const std::string& host : distinct)
    check(std::count(hosts.begin(), hosts.end(), host) * nodes == world, "the ", ranks_text(world),
          " are not divided evenly among the hosts (", counts, "); give --nodes, or start equally many on each host");
  const Topology topology{nodes, world / nodes};
  const std::string spanning = spanning_node(topology, hosts);
  check(spanning.empty(), spanning, "; start the ranks host by host (mpirun --map-by slot), or give --nodes");
  return topology;
}

std::string spanning_node(const Topology& topology, const std::vector<std::string>& hosts) {
  for (int rank = 0; rank < topology.world(); ++rank) {
    const int first = topology.node_of(rank) * topology.workers_per_node;
    const std::string &there = hosts[static_cast<size_t>(first)], &here = hosts[static_cast<size_t>(rank)];
    if (there != here)
      return detail::concat("node ", topology.node_of(rank), " spans hosts: rank ", first, " runs on ", excerpt(there),
                            ", rank ", rank, " on ", excerpt(here));
  }
  return {};
}

}  // namespace godwit
