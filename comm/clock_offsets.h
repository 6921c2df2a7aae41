// Differences between the clocks of ranks, for timelines that show several hosts.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/group.h"

namespace godwit {

// A rank's clock minus the clock of rank 0, at the same moment.
struct ClockOffset {
  int64_t ns = 0;        // difference
  int64_t error_ns = 0;  // bound of the error
};

// Collective; returns the offset of each rank r as [r], on every rank. No rank leaves a barrier before every rank has
// entered it, which bounds the offset from both sides. The result is the middle of the narrowest bounds of several
// barriers. It is 0 if the bounds contain 0, as for ranks of one host. `now`: this rank's clock in ns.
std::vector<ClockOffset> clock_offsets(Group& group, const std::function<int64_t()>& now);

}  // namespace godwit
