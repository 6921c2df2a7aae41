// Sharded parameters outside of steps: evaluations that differ between ranks, saved models.
#include <gtest/gtest.h>

#include "comm/buckets/parameter_shards.h"
#include "tests/optim/parameter_reads_checks.h"

namespace godwit {
namespace parameter_reads_test {

using namespace godwit::test;

TEST(ParameterReads, RanksEvaluateDifferentNumbersOfBatches) { expect_equal_uneven_evaluations({}); }

TEST(ParameterReads, ReadsGiveTheValuesOfParametersGatheredAtOnce) { expect_reads_of_values_gathered_at_once({}); }

TEST(ParameterReads, ModelsAreSavedBucketByBucket) { expect_models_saved_by_bucket({}); }

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

TEST(ParameterReads, RefuseAReadWithinAnother) {
  const auto read_twice = [](Communicator& comm) {
    const Layers net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "zero3")});
    replica.read_parameters([&] { replica.read_parameters([] {}); });
  };
  EXPECT_NE(error_of([&] {
              run_local({1, 2}, read_twice);
            }).find("cannot be called within a step or within each other"),
            std::string::npos);
}

// A step exchanges gradients on another thread, while a read gathers parameters.
TEST(ParameterReads, RefuseAStepWithinARead) {
  const auto step_in_read = [](Communicator& comm) {
    const Layers net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "zero3")});
    replica.read_parameters([&] { replica.begin_step(1e-3); });
  };
  EXPECT_NE(error_of([&] { run_local({1, 2}, step_in_read); }).find("a step cannot begin within"), std::string::npos);
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

}  // namespace parameter_reads_test
}  // namespace godwit
