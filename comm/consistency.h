// Checks that all ranks hold the same value, such as a hash of the layout or of the parameters.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"

namespace godwit {

// Collective: gathers the 8 bytes of `value` from all ranks in phase "agree". If they differ, throws on every rank,
// naming `what` and the ranks that differ from the most common value (on a tie, the value of the lowest rank counts).
void check_identical(Group& group, uint64_t value, const std::string& what);
// The same for several values, equally many on all ranks. what(i) names the first that differs.
void check_identical(Group& group, const std::vector<uint64_t>& values, const std::function<std::string(size_t)>& what);

}  // namespace godwit
