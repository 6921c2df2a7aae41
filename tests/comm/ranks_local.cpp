#include "comm/transport/local.h"
#include "tests/comm/ranks.h"

namespace godwit::test {

std::vector<Topology> topologies() {
  return {{1, 1}, {2, 1}, {1, 3}, {2, 2}, {5, 1}, {2, 3}, {3, 2}, {7, 1}, {4, 2}, {2, 4}, {1, 8}};
}

void run_ranks(const Topology& topology, const std::function<void(Communicator&)>& body, const Placement& placement) {
  run_local(topology, body, {.placement = placement});
}

}  // namespace godwit::test
