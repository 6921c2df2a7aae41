// Differences between the clocks of ranks, for timelines that show several hosts.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/group.h"

namespace godwit {

// What a rank's clock shows minus what that of rank 0 shows at the same moment.
struct ClockOffset {
  int64_t ns = 0;
  int64_t error_ns = 0;  // bound of the error
};

// Collective; [r]: of rank r, on every rank. No rank leaves a barrier before every rank has entered it, which bounds
// the offset from both sides; the result is the middle of the narrowest bounds of several barriers, or 0 if they allow
// it, as for ranks of one host. `now`: this rank's clock in ns.
std::vector<ClockOffset> clock_offsets(Group& group, const std::function<int64_t()>& now);

}  // namespace godwit
