// Sharded parameters outside of steps: evaluations that differ between ranks, saved models.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "comm/parallel/parameter_shards.h"
#include "nn/weights.h"
#include "tests/optim/sharding_harness.h"
#include "tests/optim/small_nets.h"
#include "tests/support.h"

namespace godwit {
namespace {

using namespace godwit::test;

std::vector<double> evaluation_losses(const Layers& net, int rank, int batches) {
  const NoGrad no_grad;
  std::vector<double> losses;
  for (int i = 0; i < batches; ++i) losses.push_back(net.loss(rank, 10 + i).value().item());
  return losses;
}

struct EvaluatedRank {
  std::vector<double> losses;
  int64_t peak = 0;  // bytes of the evaluations beyond what lives between steps
};

struct ReadPlan {
  ExchangeConfig exchange;
  Topology topology;
  int64_t bucket_bytes;
  bool tied;
};

// Rank r evaluates r batches after each of two steps.
std::vector<EvaluatedRank> evaluate_unevenly(const ReadPlan& plan) {
  std::vector<EvaluatedRank> ranks(static_cast<size_t>(plan.topology.world()));
  run_local(plan.topology, [&](Communicator& comm) {
    EvaluatedRank& own = ranks[static_cast<size_t>(comm.rank)];
    const Layers net(plan.tied);
    DataParallelOptions options{.optimizer = "adamw", .exchange = plan.exchange};
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes};
    DataParallel replica(net.parameters(), comm, options);
    for (int64_t step = 0; step < 2; ++step) {
      replica.step(net.loss(comm.rank, step));
      const int64_t before = context().pool->stats().bytes_in_use;
      context().pool->reset_peak();
      replica.read_parameters([&] {
        for (const double loss : evaluation_losses(net, comm.rank, comm.rank)) own.losses.push_back(loss);
      });
      own.peak = std::max(own.peak, context().pool->stats().peak_bytes_in_use - before);
      EXPECT_LT(context().pool->stats().bytes_in_use, before + 1024) << "all buckets were released";
    }
  });
  return ranks;
}

TEST(ParameterReads, RanksEvaluateDifferentNumbersOfBatches) {
  for (const bool tied : {false, true})
    for (const int64_t bytes : {int64_t{100}, kWeight + 4 * kWidth})
      for (const bool hybrid : {false, true}) {
        ReadPlan plan{.exchange = hybrid ? "hierarchical" : "dense",
                      .topology = hybrid ? Topology{2, 2} : Topology{1, 4},
                      .bucket_bytes = bytes,
                      .tied = tied};
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

// Each batch gathers every bucket; before each gather, and at the end, a request of 8 bytes goes to three ranks.
TEST(ParameterReads, BytesEqualTheFormulas) {
  run_local({1, 4}, [&](Communicator& comm) {
    const Layers net;
    DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", "zero3")};
    options.buckets = {kWeight + 4 * kWidth, kWeight + 4 * kWidth};
    DataParallel replica(net.parameters(), comm, options);
    ASSERT_EQ(replica.buckets().size(), kLayers);
    comm.stats->reset();
    replica.read_parameters([&] { evaluation_losses(net, comm.rank, comm.rank == 2 ? 3 : 1); });
    EXPECT_EQ(comm.stats->phases().at("parameters/all_gather").bytes_intra, 3 * kLayers * 3 * kBucket / 4);
    EXPECT_EQ(comm.stats->phases().at("parameters/requests").bytes_intra, (3 * kLayers + 1) * 3 * 8);
  });
}

// Rank 0 reads all layers and the others one layer each, in another order.
TEST(ParameterReads, RanksReadDifferentParameters) {
  run_local({1, 4}, [&](Communicator& comm) {
    const Layers net;
    DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", "zero3")};
    options.buckets = {kBucket, kBucket};
    const std::vector<float> expected = net.weights[5].value().to_vector<float>();
    DataParallel replica(net.parameters(), comm, options);
    replica.read_parameters([&] {
      if (comm.rank == 0) evaluation_losses(net, 0, 1);
      else if (comm.rank == 1) EXPECT_EQ(net.weights[5].value().to_vector<float>(), expected);
      else for (size_t i = net.biases.size(); i-- > 0;) EXPECT_EQ(net.biases[i].value().item(3), 0) << i;
    });
  });
}

// As the exchange gathers them in steps, or as their owners keep them.
TEST(ParameterReads, ReadsGiveTheValuesOfParametersGatheredAtOnce) {
  for (const char* wire : {"f32", "bf16", "int8"})
    for (const bool rounded : {true, false})
      run_local({2, 2}, [&](Communicator& comm) {
        const Layers net;
        DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", "zero3", wire)};
        options.buckets = {kBucket, kBucket};
        DataParallel replica(net.parameters(), comm, options);
        replica.step(net.loss(comm.rank, 0));
        std::vector<double> expected, losses;
        replica.with_all_parameters([&] { expected = evaluation_losses(net, comm.rank, 2); }, rounded);
        replica.read_parameters([&] { losses = evaluation_losses(net, comm.rank, 2); }, rounded);
        EXPECT_EQ(losses, expected) << wire;
      });
}

TEST(ParameterReads, RefuseAReadWithinAnother) {
  const auto read_twice = [](Communicator& comm) {
    const Layers net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "zero3")});
    replica.read_parameters([&] { replica.read_parameters([] {}); });
  };
  EXPECT_NE(error_of([&] { run_local({1, 2}, read_twice); }).find("for one purpose at a time"), std::string::npos);
}

// The other ranks wait for the requests of rank 1.
TEST(ParameterReads, AnErrorOfOneRankEndsAllReads) {
  const auto fail_in_read = [](Communicator& comm) {
    const Layers net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "zero3")});
    replica.read_parameters([&] {
      evaluation_losses(net, comm.rank, 1);
      check(comm.rank != 1, "a corrupt batch");
      evaluation_losses(net, comm.rank, comm.rank);
    });
  };
  EXPECT_NE(error_of([&] { run_local({1, 3}, fail_in_read); }).find("a corrupt batch"), std::string::npos);
}

// Rank 0 saves; no rank has memory for more than two buckets besides its shards.
TEST(ParameterReads, ModelsAreSavedBucketByBucket) {
  const TempFolder folder;
  for (const std::string sharding : {"none", "zero3", "hybrid"})
    run_local({2, 2}, [&](Communicator& comm) {
      const nn::DeferParameters defer;
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
      const int64_t before = context().pool->stats().bytes_in_use;
      context().pool->reset_peak();
      replica.read_master_weights([&] {
        if (comm.rank == 0) nn::save_weights(folder / sharding, model);
      });
      EXPECT_LE(context().pool->stats().peak_bytes_in_use - before, 2 * largest) << sharding << ", rank " << comm.rank;
    });
  const auto read_bytes = [&](const std::string& name) {
    std::ifstream in(folder / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const std::string none = read_bytes("none");
  EXPECT_GT(none.size(), 6u * 4 * 100 * 100);
  for (const std::string sharding : {"zero3", "hybrid"}) EXPECT_TRUE(read_bytes(sharding) == none) << sharding;
}

}  // namespace
}  // namespace godwit
