// Differences between the clocks of ranks, for timelines with several hosts.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/group.h"

namespace godwit {

// A rank's clock minus the clock of rank 0 at one moment.
struct ClockOffset {
  int64_t ns = 0;        // the difference
  int64_t error_ns = 0;  // bound on the error of the difference
};

// Collective. Returns the offsets of all ranks on every rank; element r is the offset of rank r. `now` returns this
// rank's clock in ns. No rank leaves a barrier before every rank has entered it. Each barrier therefore bounds an
// offset from both sides. An offset is the middle of the narrowest bounds of several barriers, or 0 if these bounds
// contain 0, as between ranks of one host.
std::vector<ClockOffset> clock_offsets(Group& group, const std::function<int64_t()>& now);

}  // namespace godwit
