#include "comm/clock_offsets.h"

#include <algorithm>
#include <limits>

#include "comm/host_tensor.h"

namespace godwit {

std::vector<ClockOffset> clock_offsets(Group& group, const std::function<int64_t()>& now) {
  constexpr int64_t kBarriers = 16;
  std::vector<int64_t> own;  // this rank's clock before and after each barrier
  for (int64_t i = 0; i < kBarriers; ++i) {
    own.push_back(now());
    group.barrier("clock_offsets");
    own.push_back(now());
  }
  const Tensor all({group.size() * 2 * kBarriers}, DType::i64, kCpu);
  group.all_gather(cpu_tensor(own), all, "clock_offsets");
  const int64_t* of_root = all.data<int64_t>();
  std::vector<ClockOffset> offsets;
  for (int rank = 0; rank < group.size(); ++rank) {
    const int64_t* of_rank = of_root + rank * 2 * kBarriers;
    int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < 2 * kBarriers; i += 2) {
      low = std::max(low, of_rank[i] - of_root[i + 1]);    // rank 0 leaves after this rank has entered
      high = std::min(high, of_rank[i + 1] - of_root[i]);  // this rank leaves after rank 0 has entered
    }
    const bool same = low <= 0 && 0 <= high;
    offsets.push_back({same ? 0 : low + (high - low) / 2, same ? std::max(-low, high) : (high - low + 1) / 2});
  }
  return offsets;
}

}  // namespace godwit
