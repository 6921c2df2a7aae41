#include "comm/group.h"

#include <gtest/gtest.h>

#include "comm/transport/local.h"

namespace godwit {
namespace group_test {

TEST(Group, PartsCoverAllElementsEvenly) {
  for (int64_t n : {0, 1, 5, 8, 1000003})
    for (int parts : {1, 2, 3, 8}) {
      EXPECT_EQ(part_begin(n, parts, 0), 0);
      EXPECT_EQ(part_begin(n, parts, parts), n);
      for (int i = 0; i < parts; ++i) {
        const int64_t length = part_begin(n, parts, i + 1) - part_begin(n, parts, i);
        EXPECT_EQ(length, n / parts + (i < n % parts));
      }
    }
}

// Seven elements over three ranks: segments of 3, 2 and 2. A rank sends every peer that peer's segment, then its own.
TEST(Group, AllReduceCountsUnevenSegmentsPerRank) {
  const int64_t expected[] = {(2 + 2 + 3 + 3) * 8, (3 + 2 + 2 + 2) * 8, (3 + 2 + 2 + 2) * 8};
  run_local({3, 1}, [&](Communicator& comm) {
    comm.world->all_reduce(Tensor::zeros({7}, DType::f64), Reduce::sum, "x");
    EXPECT_EQ(comm.stats->phase("x").bytes_inter, expected[comm.rank]);
    comm.stats->reset();
    EXPECT_EQ(comm.stats->total().calls, 0);
  });
}

TEST(Group, RefusesWrongArguments) {
  run_local({1, 1}, [](Communicator& comm) {
    Group& group = *comm.world;
    const Tensor x = Tensor::zeros({4}), y({4}), bits({4}, DType::u32), longer({5});
    EXPECT_THROW(group.all_reduce(Tensor(), Reduce::sum, "t"), Error);
    EXPECT_THROW(group.all_reduce(bits, Reduce::sum, "t"), Error);
    EXPECT_THROW(group.reduce_scatter(bits, Tensor({4}, DType::u32), Reduce::sum, "t"), Error);
    EXPECT_THROW(group.reduce_scatter(x, longer, Reduce::sum, "t"), Error);
    EXPECT_THROW(group.all_gather(x, longer, "t"), Error);
    EXPECT_THROW(group.all_gather(x, bits, "t"), Error);
    EXPECT_THROW(group.all_gather(x, x, "t"), Error);
    EXPECT_THROW(group.all_gather(x.range(0, 3), x.range(1, 3), "t"), Error);
    EXPECT_THROW(group.all_to_all(x, longer, "t"), Error);
    EXPECT_THROW(group.broadcast(x, 1, "t"), Error);
    EXPECT_THROW(group.broadcast(Tensor(), 0, "t"), Error);
    EXPECT_NO_THROW(group.all_gather(x.range(0, 2), x.range(2, 2), "t"));
  });
  run_local({3, 1},
            [](Communicator& comm) { EXPECT_THROW(comm.world->all_to_all(Tensor({4}), Tensor({4}), "t"), Error); });
}

}  // namespace group_test
}  // namespace godwit
