// Checks of sharded parameters outside of steps, on every device: evaluations that differ between ranks, and saved
// models.
#pragma once
#include <fstream>
#include <iterator>

#include "nn/weights.h"
#include "tests/optim/net_harness.h"
#include "tests/support.h"

namespace godwit::test {

inline std::vector<double> evaluation_losses(const Layers& net, int rank, int batches) {
  const NoGrad no_grad;
  std::vector<double> losses;
  for (int i = 0; i < batches; ++i) losses.push_back(net.loss(rank, 10 + i).value().item());
  return losses;
}

struct EvaluatedRank {
  std::vector<double> losses;
  int64_t peak = 0;  // peak bytes of the evaluations above the memory between steps
};

struct ReadPlan {
  ExchangeConfig exchange;
  Topology topology;
  int64_t bucket_bytes;
  bool tied;
  Placement placement;
};

// Rank r evaluates r batches after each of two steps.
inline std::vector<EvaluatedRank> evaluate_unevenly(const ReadPlan& plan) {
  std::vector<EvaluatedRank> ranks(static_cast<size_t>(plan.topology.world()));
  const auto body = [&](Communicator& comm) {
    RankMemory memory;
    EvaluatedRank& own = ranks[static_cast<size_t>(comm.rank)];
    const Layers net(plan.tied);
    DataParallelOptions options{.optimizer = "adamw", .exchange = plan.exchange};
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes};
    DataParallel replica(net.parameters(), comm, options);
    for (int64_t step = 0; step < 2; ++step) {
      replica.step(net.loss(comm.rank, step));
      const int64_t before = memory.in_use();
      memory.reset_peak();
      replica.read_parameters([&] {
        for (const double loss : evaluation_losses(net, comm.rank, comm.rank)) own.losses.push_back(loss);
      });
      own.peak = std::max(own.peak, memory.peak() - before);
      EXPECT_LT(memory.in_use(), before + 1024) << "all buckets were released";
    }
  };
  run_local(plan.topology, body, {.placement = plan.placement});
  return ranks;
}

inline void expect_equal_uneven_evaluations(const Placement& placement) {
  for (const bool tied : {false, true})
    for (const int64_t bytes : {int64_t{100}, kWeight + 4 * kWidth})
      for (const bool hybrid : {false, true}) {
        ReadPlan plan{.exchange = hybrid ? "hierarchical" : "dense",
                      .topology = hybrid ? Topology{2, 2} : Topology{1, 4},
                      .bucket_bytes = bytes,
                      .tied = tied,
                      .placement = placement};
        const std::vector<EvaluatedRank> none = evaluate_unevenly(plan);
        plan.exchange = sharded("dense", hybrid ? "hybrid" : "zero3");
        for (const bool reshard : {true, false}) {
          plan.exchange.reshard_after_forward = reshard;
          const std::vector<EvaluatedRank> shards = evaluate_unevenly(plan);
          for (size_t r = 0; r < 4; ++r) {
            EXPECT_EQ(shards[r].losses, none[r].losses) << r;
            EXPECT_EQ(shards[r].losses.size(), 2 * r);
            EXPECT_LE(shards[r].peak, none[r].peak + 2 * kBucket) << r;
          }
          EXPECT_GE(shards[0].peak, kWeight) << "rank 0 evaluates nothing and takes part in the gathers";
          EXPECT_LE(shards[0].peak, kBucket + 1024);
        }
      }
}

// Reads parameters as the exchange gathers them in steps, or as their owners keep them.
inline void expect_reads_of_values_gathered_at_once(const Placement& placement) {
  for (const char* wire : {"f32", "bf16", "int8"})
    for (const bool rounded : {true, false}) {
      const auto body = [&](Communicator& comm) {
        const Layers net;
        DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", "zero3", wire)};
        options.buckets = {kBucket, kBucket};
        DataParallel replica(net.parameters(), comm, options);
        replica.step(net.loss(comm.rank, 0));
        std::vector<double> expected, losses;
        replica.with_all_parameters([&] { expected = evaluation_losses(net, comm.rank, 2); }, rounded);
        replica.read_parameters([&] { losses = evaluation_losses(net, comm.rank, 2); }, rounded);
        EXPECT_EQ(losses, expected) << wire;
      };
      run_local({2, 2}, body, {.placement = placement});
    }
}

// Rank 0 saves. No rank has memory for more than two buckets in addition to its shards.
inline void expect_models_saved_by_bucket(const Placement& placement) {
  const TempFolder folder;
  for (const std::string sharding : {"none", "zero3", "hybrid"}) {
    const auto body = [&](Communicator& comm) {
      const nn::DeferParameters defer;
      RankMemory memory;
      const Stack model;
      DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", sharding)};
      options.buckets = {1 << 16, 1 << 16};
      DataParallel replica(model.parameters(), comm, options);
      int64_t largest = 0, all = 0;
      for (const Bucket& bucket : replica.buckets()) {
        largest = std::max(largest, 4 * bucket.padded_numel());
        all += 4 * bucket.padded_numel();
      }
      ASSERT_GT(all, 4 * largest);
      const int64_t before = memory.in_use();
      memory.reset_peak();
      replica.read_master_weights([&] {
        if (comm.rank == 0) nn::save_weights(folder / sharding, model);
      });
      EXPECT_LE(memory.peak() - before, 2 * largest) << sharding << ", rank " << comm.rank;
    };
    run_local({2, 2}, body, {.placement = placement});
  }
  const auto read_bytes = [&](const std::string& name) {
    std::ifstream in(folder / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const std::string none = read_bytes("none");
  EXPECT_GT(none.size(), 6u * 4 * 100 * 100);
  for (const std::string sharding : {"zero3", "hybrid"}) EXPECT_TRUE(read_bytes(sharding) == none) << sharding;
}

}  // namespace godwit::test
