// Rank layout: nodes × workers per node, numbered node by node.
#pragma once
#include "engine/check.h"

namespace godwit {

enum class Link { intra, inter };  // intra: within a node; inter: between nodes

// Rank r is worker r mod workers_per_node of node r / workers_per_node.
struct Topology {
  int nodes = 1;             // number of nodes
  int workers_per_node = 1;  // number of ranks on each node

  int world() const { return nodes * workers_per_node; }              // number of ranks
  int node_of(int rank) const { return rank / workers_per_node; }     // node of the rank
  int local_rank(int rank) const { return rank % workers_per_node; }  // index of the rank within its node
  // Level of the link between ranks a and b.
  Link link(int a, int b) const { return node_of(a) == node_of(b) ? Link::intra : Link::inter; }
};

}  // namespace godwit
