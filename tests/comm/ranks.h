// The transport that collectives_test.cpp runs over; each test program defines these once.
#pragma once
#include <functional>
#include <vector>

#include "comm/group.h"
#include "comm/transport/placement.h"

namespace godwit::testing {

std::vector<Topology> topologies();  // that this program can run
void run_ranks(const Topology& topology, const std::function<void(Communicator&)>& body,
               const Placement& placement = {});

}  // namespace godwit::testing
