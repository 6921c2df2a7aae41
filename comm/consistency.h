// Checks that all ranks hold the same thing: layouts at the start, replicas while training.
#pragma once
#include <cstdint>
#include <string>

#include "comm/group.h"

namespace godwit {

// Collective: exchanges 8 bytes with every rank, as phase "agree". When the values differ it throws on every rank,
// naming `what` and the ranks that differ from the majority (from the lowest ranks when there is none).
void check_same(Group& group, uint64_t value, const std::string& what);

}  // namespace godwit
