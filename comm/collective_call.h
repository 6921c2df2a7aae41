// CollectiveCall: the arguments of one collective on one rank. The transports compare them across ranks. Internal to
// the transports.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/group.h"
#include "engine/event.h"

namespace godwit {

enum class Collective { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, barrier };  // kinds of calls

// Arguments of a call.
struct CollectiveCall {
  Collective collective;        // kind of call
  std::string_view phase;       // purpose of the call, for counters and messages
  DType dtype = DType::f32;     // type of the values
  Reduce reduce = Reduce::sum;  // operation of reductions
  int root = 0;                 // sender of a broadcast
  int64_t bytes = 0;            // size of `in`
  const void* in = nullptr;     // input
  void* out = nullptr;          // output
  Device device = kCpu;         // device of `in` and `out`
  Event ready = {};             // event of the caller's stream; `in` and `out` may be accessed only after it
};

// Compares all fields except the addresses, the device index and `ready`.
bool same(const CollectiveCall& a, const CollectiveCall& b);

// Error text for calls that differ: "ranks disagree: rank a calls …, rank b calls …; …".
std::string describe_mismatch(int rank_a, const CollectiveCall& a, int rank_b, const CollectiveCall& b);

}  // namespace godwit
