// Call: what a rank asks its group for; all ranks must ask for the same. Internal to the transports.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/group.h"
#include "engine/event.h"

namespace godwit {

enum class Collective { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, barrier };

struct Call {
  Collective collective;
  std::string_view phase;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  int root = 0;
  int64_t bytes = 0;
  const void* in = nullptr;
  void* out = nullptr;
  Device device = kCpu;  // where that memory is
  StreamMark ready = {};  // after which it may be read
};

bool same(const Call& a, const Call& b);  // but for the memory

// "ranks disagree: rank a calls …, rank b calls …; …"
std::string disagreement(int rank_a, const Call& a, int rank_b, const Call& b);

}  // namespace godwit
