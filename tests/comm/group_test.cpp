#include "comm/group.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/local.h"

namespace godwit {
namespace {

TEST(Group, PartsCoverEverythingEvenly) {
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

// Sums the counts of all ranks after each has run `body`.
std::map<std::string, CommCount> total_counts(const Topology& topology,
                                              const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::map<std::string, CommCount> sum;
  run_local(topology, [&](Communicator& comm) {
    body(comm);
    std::lock_guard lock(mutex);
    for (const auto& [phase, count] : comm.stats->phases()) {
      sum[phase].bytes_intra += count.bytes_intra;
      sum[phase].bytes_inter += count.bytes_inter;
      sum[phase].calls += count.calls;
    }
  });
  return sum;
}

TEST(Group, BytesOfAllRanksEqualTheFormulas) {
  for (int nodes : {1, 2, 3, 5})
    for (int workers : {1, 2, 3})
      for (int64_t d : {0, 1, 7, 96, 1000}) {
        const Topology topology{nodes, workers};
        const int64_t world = topology.world(), n = nodes, m = workers;
        const auto counts = total_counts(topology, [&](Communicator& comm) {
          const Tensor x = Tensor::zeros({d}), all = Tensor::zeros({d * world}), other = Tensor::zeros({d * world});
          comm.world->all_reduce(x, Reduce::mean, "all_reduce");
          comm.world->reduce_scatter(all, x, Reduce::sum, "reduce_scatter");
          comm.world->all_gather(x, all, "all_gather");
          comm.world->all_to_all(all, other, "all_to_all");
          comm.world->broadcast(x, 0, "broadcast");
          comm.intra->all_reduce(x, Reduce::sum, "intra");
          comm.inter->all_reduce(x, Reduce::sum, "inter");
          comm.world->barrier("barrier");
        });
        SCOPED_TRACE(::testing::Message() << n << " nodes of " << m << ", d = " << d);
        // Ordered pairs of ranks on one node, on two nodes.
        const int64_t intra = n * m * (m - 1), inter = n * m * (n - 1) * m;
        for (const char* phase : {"reduce_scatter", "all_gather", "all_to_all"}) {
          EXPECT_EQ(counts.at(phase).bytes_intra, intra * 4 * d) << phase;
          EXPECT_EQ(counts.at(phase).bytes_inter, inter * 4 * d) << phase;
          EXPECT_EQ(counts.at(phase).calls, world) << phase;
        }
        const CommCount reduced = counts.at("all_reduce");
        EXPECT_EQ(reduced.bytes_intra + reduced.bytes_inter, 2 * (world - 1) * 4 * d);
        if (d % world == 0) {
          EXPECT_EQ(reduced.bytes_inter, 2 * inter * 4 * d / world);
        }
        EXPECT_EQ(counts.at("broadcast").bytes_intra, (m - 1) * 4 * d);
        EXPECT_EQ(counts.at("broadcast").bytes_inter, (n - 1) * m * 4 * d);
        EXPECT_EQ(counts.at("intra").bytes_intra, n * 2 * (m - 1) * 4 * d);
        EXPECT_EQ(counts.at("intra").bytes_inter, 0);
        EXPECT_EQ(counts.at("inter").bytes_inter, m * 2 * (n - 1) * 4 * d);
        EXPECT_EQ(counts.at("inter").bytes_intra, 0);
        EXPECT_EQ(counts.count("barrier"), 0u) << "barriers carry no payload";
      }
}

// Seven elements over three ranks: parts of 3, 2 and 2. A rank sends every peer its part, then its own part.
TEST(Group, AllReduceCountsUnevenPartsPerRank) {
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

}  // namespace
}  // namespace godwit
