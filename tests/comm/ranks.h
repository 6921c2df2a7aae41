// The transport under test in collectives_test.cpp. Each test program defines these functions once.
#pragma once
#include <functional>
#include <vector>

#include "comm/group.h"
#include "comm/transport/placement.h"

namespace godwit::test {

std::vector<Topology> topologies();  // topologies that this program can run
void run_ranks(const Topology& topology, const std::function<void(Communicator&)>& body,
               const Placement& placement = {});

}  // namespace godwit::test
