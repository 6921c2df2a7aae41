// Tests for every transport. comm_tests runs them with threads, mpi_ranks with processes under mpirun.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "comm/transport/group_nccl.h"
#include "comm/transport/round_choice.h"
#include "tests/comm/ranks.h"
#include "tests/comm/table.h"

namespace godwit {
namespace collectives_test {

using test::random_row;
using test::random_tensor;
using test::rank_order_sum;
using test::run_ranks;

class Collectives : public ::testing::TestWithParam<Placement> {
 protected:
  void SetUp() override {
    if (GetParam().device == "cpu") return;
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
    if (GetParam().nccl && (!nccl_built() || cuda_devices() < 2)) GTEST_SKIP() << "needs NCCL and two GPUs";
  }
  static std::vector<Topology> topologies() {
    std::vector<Topology> all = test::topologies();
    if (GetParam().nccl) std::erase_if(all, [](const Topology& t) { return t.world() > cuda_devices(); });
    return all;
  }
  static void run(const Topology& topology, const std::function<void(Communicator&)>& body) {
    run_ranks(topology, body, GetParam());
  }
  template <class T>
  static void check_all_reduce(int64_t n, const std::vector<Reduce>& ops);
};

std::string name_of(const ::testing::TestParamInfo<Placement>& info) {
  const std::array names{"cpu", "one_gpu", "shared_gpus", "nccl"};
  return names[info.index];
}

// One GPU for all ranks; GPUs in turn; and one GPU per rank, with NCCL.
INSTANTIATE_TEST_SUITE_P(On, Collectives,
                         ::testing::Values(Placement{"cpu", false, false}, Placement{"cuda:0", false, false},
                                           Placement{"cuda", true, false}, Placement{"cuda", false, true, true}),
                         name_of);

const int64_t kSizes[] = {0, 1, 5, 16, 33, 1000, 20001};

template <class T>
void expect_close(const std::vector<T>& values, const std::vector<T>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-5) << i;
}

// All topologies share the rows of the ranks, because rows take longer to compute than the reduction.
template <class T>
void Collectives::check_all_reduce(int64_t n, const std::vector<Reduce>& ops) {
  std::vector<std::vector<T>> rows;
  for (const Topology& topology : topologies()) {
    while (std::ssize(rows) < topology.world()) rows.push_back(random_row<T>(7, static_cast<int>(rows.size()), n));
    std::vector<T> sum = rows[0];
    for (int rank = 1; rank < topology.world(); ++rank)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += rows[static_cast<size_t>(rank)][i];
    for (const Reduce op : ops) {
      std::vector<T> expected = sum;
      for (T& value : expected) value /= static_cast<T>(op == Reduce::mean ? topology.world() : 1);
      run(topology, [&](Communicator& comm) {
        const Tensor x = Tensor::of(rows[static_cast<size_t>(comm.rank)], {n});
        comm.world->all_reduce(x, op, "test");
        if (GetParam().nccl) return expect_close(x.to_vector<T>(), expected);
        EXPECT_EQ(x.to_vector<T>(), expected) << topology.nodes << "x" << topology.workers_per_node << " n " << n;
      });
    }
  }
}

TEST_P(Collectives, AllReduceIsTheRankOrderSumBitForBit) {
  for (const int64_t n : kSizes) {
    check_all_reduce<float>(n, {Reduce::mean, Reduce::sum});
    check_all_reduce<double>(n, {Reduce::mean});
  }
}

// Over MPI, the first calls of each size alternate between one round and two; later calls use the faster choice.
TEST_P(Collectives, SmallAllReducesKeepTheirBits) {
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      for (const int64_t kib : {16, 32, 64}) {  // over all ranks
        const int64_t n = kib * 256 / comm.world->size();
        const auto expected = rank_order_sum<float>(9, comm.world->size(), n, false);
        for (int call = 0; call < 2 * RoundChoice::kTrials + 2; ++call) {
          const Tensor x = Tensor::of(random_row<float>(9, comm.rank, n), {n});
          comm.world->all_reduce(x, Reduce::sum, "test");
          if (GetParam().nccl) expect_close(x.to_vector<float>(), expected);
          else EXPECT_EQ(x.to_vector<float>(), expected) << n << " values, call " << call;
        }
      }
    });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsSegment) {
  for (const Topology& topology : topologies())
    for (int64_t k : {0, 1, 7, 33, 4099}) {
      const int64_t n = k * topology.world();
      const std::vector<float> expected = rank_order_sum<float>(8, topology.world(), n, true);
      run(topology, [&](Communicator& comm) {
        const Tensor in = random_tensor<float>(8, comm.rank, n), out({k});
        comm.world->reduce_scatter(in, out, Reduce::mean, "test");
        const auto begin = expected.begin() + comm.rank * k;
        if (GetParam().nccl) expect_close(out.to_vector<float>(), std::vector<float>(begin, begin + k));
        else EXPECT_EQ(out.to_vector<float>(), std::vector<float>(begin, begin + k));
        EXPECT_EQ(in.to_vector<float>(), random_row<float>(8, comm.rank, n)) << "the input must not change";
      });
    }
}

// More pieces than MPI has in flight, the last one shorter, and parts of different lengths. The thread sanitizer, which
// cannot test MPI, takes 16 µs per value.
TEST_P(Collectives, ManyPiecesGiveTheRankOrderSum) {
  const auto value = [](int rank, int64_t i) { return static_cast<float>((i * 7 + rank) % 1000) / 3; };
  for (const Topology& topology : topologies()) {
    const int64_t values = std::string(GODWIT_SANITIZE) == "thread" ? 150'000 : 1'500'000;
    const int64_t k = values / topology.world(), n = k * topology.world() + topology.world() / 2;
    std::vector<float> expected(static_cast<size_t>(n));
    for (int rank = 0; rank < topology.world(); ++rank)
      for (int64_t i = 0; i < n; ++i) expected[static_cast<size_t>(i)] += value(rank, i);
    run(topology, [&](Communicator& comm) {
      std::vector<float> own;
      for (int64_t i = 0; i < n; ++i) own.push_back(value(comm.rank, i));
      const Tensor x = Tensor::of(own, {n}), in = Tensor::of(own, {n}).range(0, k * topology.world());
      const Tensor part({k}), all(in.shape());
      comm.world->all_reduce(x, Reduce::sum, "test");
      comm.world->reduce_scatter(in, part, Reduce::sum, "test");
      comm.world->all_gather(part, all, "test");
      const std::vector<float> expected_all(expected.begin(), expected.begin() + all.numel());
      if (GetParam().nccl) return expect_close(x.to_vector<float>(), expected);
      EXPECT_TRUE(x.to_vector<float>() == expected) << "all_reduce";
      EXPECT_TRUE(all.to_vector<float>() == expected_all) << "reduce_scatter and all_gather";
    });
  }
}

TEST_P(Collectives, AllGatherConcatenatesInRankOrder) {
  for (const Topology& topology : topologies())
    for (int64_t k : {0, 1, 7, 4099}) {
      run(topology, [&](Communicator& comm) {
        const Tensor out({topology.world() * k});
        comm.world->all_gather(random_tensor<float>(9, comm.rank, k), out, "test");
        for (int peer = 0; peer < topology.world(); ++peer)
          EXPECT_EQ(out.range(peer * k, k).to_vector<float>(), random_row<float>(9, peer, k));
      });
    }
}

TEST_P(Collectives, AllToAllTransposesSegments) {
  for (const Topology& topology : topologies())
    for (int64_t k : {0, 1, 7, 4099}) {
      const int world = topology.world();
      run(topology, [&](Communicator& comm) {
        std::vector<uint32_t> values;
        for (int64_t i = 0; i < world * k; ++i) values.push_back(static_cast<uint32_t>(comm.rank * 1000000 + i));
        const Tensor in = Tensor::of(values, {world * k}), out({world * k}, DType::u32);
        comm.world->all_to_all(in, out, "test");
        const std::vector<uint32_t> received = out.to_vector<uint32_t>();
        for (int peer = 0; peer < world; ++peer)
          for (int64_t i = 0; i < k; ++i)
            ASSERT_EQ(received[static_cast<size_t>(peer * k + i)],
                      static_cast<uint32_t>(peer * 1000000 + comm.rank * k + i));
      });
    }
}

// Pitfall 36: all ranks send all others more data at once than sockets and pipes can buffer. This must not deadlock.
TEST_P(Collectives, Pitfall36AllRanksSendMoreThanABufferHolds) {
  constexpr int64_t kWords = 3 << 19;  // 6 MiB to each rank
  for (const Topology& topology : topologies()) {
    const int world = topology.world();
    if (topology.workers_per_node > 1 || world > 4) continue;
    run(topology, [&](Communicator& comm) {
      const Tensor in({world * kWords}, DType::u32), out({world * kWords}, DType::u32);
      for (int peer = 0; peer < world; ++peer) in.range(peer * kWords, kWords).fill(100 * comm.rank + peer);
      comm.world->all_to_all(in, out, "large");
      const std::vector<uint32_t> received = out.to_vector<uint32_t>();
      for (int peer = 0; peer < world; ++peer)
        EXPECT_EQ(std::count(received.begin() + peer * kWords, received.begin() + (peer + 1) * kWords,
                             static_cast<uint32_t>(100 * peer + comm.rank)),
                  kWords);
    });
  }
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      for (int root = 0; root < topology.world(); ++root) {
        const Tensor x = random_tensor<double>(10, comm.rank, 77);
        comm.world->broadcast(x, root, "test");
        EXPECT_EQ(x.to_vector<double>(), random_row<double>(10, root, 77));
        const Tensor bytes = Tensor::full({3}, comm.rank, DType::u8);
        comm.world->broadcast(bytes, root, "bytes");
        EXPECT_EQ(bytes.item(2), root);
      }
    });
}

TEST_P(Collectives, IntraAndInterGroupsFollowTheTopology) {
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      EXPECT_EQ(comm.intra->size(), topology.workers_per_node);
      EXPECT_EQ(comm.inter->size(), topology.nodes);
      EXPECT_EQ(comm.intra->rank(), comm.local_rank());
      EXPECT_EQ(comm.inter->rank(), comm.node());
      const Tensor own = Tensor::full({1}, comm.rank, DType::i32);
      const Tensor node({topology.workers_per_node}, DType::i32), column({topology.nodes}, DType::i32);
      comm.intra->all_gather(own, node, "intra");
      comm.inter->all_gather(own, column, "inter");
      for (int i = 0; i < topology.workers_per_node; ++i)
        EXPECT_EQ(node.item(i), comm.node() * topology.workers_per_node + i);
      for (int i = 0; i < topology.nodes; ++i)
        EXPECT_EQ(column.item(i), i * topology.workers_per_node + comm.local_rank());
    });
}

TEST_P(Collectives, ManyCollectivesInARowStaySynchronized) {
  for (const Topology& topology : topologies())
    run(topology, [](Communicator& comm) {
      const int n = comm.topology.nodes, m = comm.topology.workers_per_node;
      for (int step = 0; step < 60; ++step) {
        const Tensor x = Tensor::full({5}, comm.rank + step, DType::f64);
        (step % 3 == 0 ? *comm.world : step % 3 == 1 ? *comm.intra : *comm.inter).all_reduce(x, Reduce::sum, "x");
        const double expected = step % 3 == 0   ? n * m * (n * m - 1) / 2 + n * m * step
                                : step % 3 == 1 ? m * (m * comm.node() + step) + m * (m - 1) / 2
                                                : n * (comm.local_rank() + step) + m * n * (n - 1) / 2;
        ASSERT_EQ(x.item(4), expected);
      }
    });
}

// The sum of all ranks' counts, on every rank.
std::map<std::string, CommCount> total_counts(Communicator& comm) {
  std::map<std::string, CommCount> total = comm.stats->phases();
  for (auto& [phase, count] : total) {
    const Tensor own = Tensor::of<int64_t>({count.bytes_intra, count.bytes_inter, count.calls}, {3});
    const Tensor all({3 * comm.world->size()}, DType::i64);
    comm.world->all_gather(own, all, "counts");
    count = {};
    const std::vector<int64_t> counts = all.to_vector<int64_t>();
    for (int rank = 0; rank < comm.world->size(); ++rank) {
      const int64_t* of_rank = counts.data() + 3 * rank;
      count.bytes_intra += of_rank[0];
      count.bytes_inter += of_rank[1];
      count.calls += of_rank[2];
    }
  }
  return total;
}

TEST_P(Collectives, BytesOfAllRanksEqualTheFormulas) {
  for (const Topology& topology : topologies())
    for (int64_t d : {0, 1, 7, 96, 1000})
      run(topology, [&](Communicator& comm) {
        const int64_t world = topology.world(), n = topology.nodes, m = topology.workers_per_node;
        const Tensor x = Tensor::zeros({d}), all = Tensor::zeros({d * world}), other = Tensor::zeros({d * world});
        comm.world->all_reduce(x, Reduce::mean, "all_reduce");
        comm.world->reduce_scatter(all, x, Reduce::sum, "reduce_scatter");
        comm.world->all_gather(x, all, "all_gather");
        comm.world->all_to_all(all, other, "all_to_all");
        comm.world->broadcast(x, 0, "broadcast");
        comm.intra->all_reduce(x, Reduce::sum, "intra");
        comm.inter->all_reduce(x, Reduce::sum, "inter");
        comm.world->barrier("barrier");
        const auto counts = total_counts(comm);
        SCOPED_TRACE(::testing::Message() << n << " nodes of " << m << ", d = " << d);
        // Ordered pairs of ranks: on one node, and on two nodes.
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
      });
}

// Each rank in turn is late.
TEST_P(Collectives, NoRankLeavesABarrierBeforeAllHaveEntered) {
  using Clock = std::chrono::steady_clock;
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      const int world = topology.world();
      for (int late = 0; late < world; ++late) {
        if (comm.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        const int64_t entered = Clock::now().time_since_epoch().count();  // on the clock of the host
        comm.world->barrier("late");
        const int64_t left = Clock::now().time_since_epoch().count();
        const Tensor all({world}, DType::i64);
        comm.world->all_gather(Tensor::of<int64_t>({entered}, {1}), all, "entered");
        for (const int64_t of_rank : all.to_vector<int64_t>()) EXPECT_GE(left, of_rank) << "late: " << late;
      }
    });
}

// Ranks synchronize only in every fourth step. All must stop after the same step, without a deadlock.
TEST_P(Collectives, RanksAgreeOnTheStepToStopAfter) {
  for (const Topology& topology : topologies())
    for (const int stopping : {0, topology.world() - 1})
      run(topology, [&](Communicator& comm) {
        int64_t steps = 0;
        while (steps < 1000 && comm.world->control()->may_continue(comm.rank == stopping && steps >= 9)) {
          if (++steps % 4 == 0) comm.inter->barrier("step");
          if (steps % 4 == comm.rank % 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const Tensor own = Tensor::of<int64_t>({steps}, {1}), all({topology.world()}, DType::i64);
        comm.world->all_gather(own, all, "steps");
        for (const int64_t other : all.to_vector<int64_t>()) EXPECT_EQ(other, steps);
        EXPECT_GE(steps, 9);
        EXPECT_LT(steps, 1000);
      });
}

// Several stops in one run, each requested by another rank.
TEST_P(Collectives, StepsMayContinueAfterAStop) {
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      int64_t steps = 0, stops = 0;
      while (steps < 100) {
        const bool asks = stops < 5 && comm.rank == stops % topology.world() && steps >= 9 * (stops + 1);
        if (comm.world->control()->may_continue(asks)) {
          if (++steps % 4 == comm.rank % 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (steps % 2 == 0) comm.world->barrier("step");  // ranks differ by a step at most
          continue;
        }
        const Tensor own = Tensor::of<int64_t>({steps}, {1}), all({topology.world()}, DType::i64);
        comm.world->all_gather(own, all, "steps");
        for (const int64_t other : all.to_vector<int64_t>()) EXPECT_EQ(other, steps);
        ++stops;
        continue_steps(*comm.world);
      }
      EXPECT_EQ(stops, 5);
    });
}

// Ranks that wait in a collective, or have none to call, learn of the request.
TEST_P(Collectives, AStopRequestReachesAllRanks) {
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      const int last = topology.world() - 1;
      EXPECT_FALSE(comm.world->control()->stop_requested(false));
      comm.world->barrier("begin");
      if (comm.rank == last) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      while (comm.rank % 2 == 0 && !comm.world->control()->stop_requested(comm.rank == last)) continue;
      if (comm.rank == last) {
        EXPECT_TRUE(comm.world->control()->stop_requested(true));
      }
      comm.world->barrier("end");
      EXPECT_TRUE(comm.world->control()->may_continue(false)) << "the request does not count as a stop between steps";
    });
}

// One rank requests a stop after the other ranks have begun their last step or ended.
TEST_P(Collectives, AStopRequestInTheLastStepHasNoEffect) {
  for (const Topology& topology : topologies())
    run(topology, [&](Communicator& comm) {
      const bool late = comm.rank == topology.world() - 1 && comm.rank > 0;
      for (int step = 1; step <= 3; ++step) {
        if (late && step == 3) comm.world->barrier("steps");
        EXPECT_TRUE(comm.world->control()->may_continue(late && step == 3));
      }
      if (!late && topology.world() > 1) comm.world->barrier("steps");
    });
}

}  // namespace collectives_test
}  // namespace godwit
