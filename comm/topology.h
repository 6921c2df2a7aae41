// Rank layout: nodes × workers per node, numbered node by node.
#pragma once
#include "engine/check.h"

namespace godwit {

enum class Link { intra, inter };  // same node, different nodes

struct Topology {
  int nodes = 1;
  int workers_per_node = 1;

  int world() const { return nodes * workers_per_node; }
  int node_of(int rank) const { return rank / workers_per_node; }
  int local_rank(int rank) const { return rank % workers_per_node; }
  Link link(int a, int b) const { return node_of(a) == node_of(b) ? Link::intra : Link::inter; }
};

}  // namespace godwit
