#include "comm/clock_offsets.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "comm/transport/local.h"
#include "engine/clock.h"

namespace godwit {
namespace clock_offsets_test {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

TEST(ClockOffsets, FindsTheClocksOfOtherHostsWithinItsBound) {
  run_local({3, 1}, [](Communicator& comm) {
    const int64_t true_offsets[] = {0, 3'600'000'000'123, -7'000'000'000};
    const auto offsets = clock_offsets(*comm.world, [&] { return now_ns() + true_offsets[comm.rank]; });
    ASSERT_EQ(offsets.size(), 3u);
    for (int rank = 0; rank < 3; ++rank) {
      const ClockOffset& found = offsets[static_cast<size_t>(rank)];
      EXPECT_LE(std::abs(found.ns - true_offsets[rank]), found.error_ns) << "rank " << rank;
      EXPECT_LT(found.error_ns, 1'000'000'000) << "the bound is too large";
    }
  });
}

TEST(ClockOffsets, AreZeroOnOneHost) {
  run_local({1, 4}, [](Communicator& comm) {
    for (const ClockOffset& offset : clock_offsets(*comm.world, now_ns)) EXPECT_EQ(offset.ns, 0);
  });
}

}  // namespace clock_offsets_test
}  // namespace godwit
