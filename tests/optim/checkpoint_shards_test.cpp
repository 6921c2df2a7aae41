// Checkpoints of sharded state: other buckets, other shards, and ranks without a shard.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/optim/checkpoint_harness.h"

namespace godwit {
namespace checkpoint_shards_test {

using test::expect_resumed_alike;
using test::MethodOutcome;
using test::MethodPlan;
using test::save_in_between;
using test::train_by;

// With other buckets, ranks own other values, so a rank reads its state from the files of several ranks.
TEST(Checkpoint, BucketsMayChange) {
  for (const char* name : {"adamw", "birder", "one_bit_adam", "one_bit_lamb", "zero_one_adam"})
    for (const int64_t bytes : {64, 1 << 20}) {
      SCOPED_TRACE(name);
      MethodPlan plan{.optimizer = name};
      if (std::string(name) == "birder")
        plan.change = [](DataParallelOptions& o) { o.optimizer.set("mask", "automatic"); };
      expect_resumed_alike(plan, [&](MethodPlan& changed) { changed.bucket_bytes = bytes; });
    }
  for (const std::string& exchange : method_names<ExchangeMethod>())
    for (const int64_t bytes : {64, 1 << 20}) {
      SCOPED_TRACE(exchange);
      expect_resumed_alike({.optimizer = "adamw", .exchange = exchange},
                           [&](MethodPlan& changed) { changed.bucket_bytes = bytes; });
    }
  for (const char* sharding : {"zero2", "zero3", "hybrid"})
    expect_resumed_alike({.optimizer = "adamw", .exchange = "dense", .sharding = sharding, .parameter_wire = "bf16"},
                         [](MethodPlan& changed) { changed.bucket_bytes = 1 << 20; });
}

// A shard has 315 elements in the saved run, so its mask ends within a word.
TEST(Checkpoint, MasksOfShardsEndWithinAWord) {
  for (const Topology topology : {Topology{2, 2}, {1, 3}}) {
    MethodPlan plan{.optimizer = "birder", .sharding = "hybrid", .topology = topology, .sizes = {35, 5, 77, 9, 504}};
    plan.late = 3, plan.bucket_bytes = 1 << 20;
    plan.change = [](DataParallelOptions& o) { o.optimizer.set("mask", "automatic"); };
    expect_resumed_alike(plan);
    expect_resumed_alike(plan, [](MethodPlan& changed) { changed.bucket_bytes = 256; });
  }
}

// With sharding hybrid, a rank's norms of parameters belong to its shards. With other shards, the norms are the sums of
// v, which differ in the last bits.
TEST(Checkpoint, NormsOfOtherShardsAreComputed) {
  for (const char* name : {"one_bit_adam", "one_bit_lamb"})
    for (const int64_t bytes : {512, 1 << 20}) {
      MethodPlan plan{.optimizer = name, .sharding = "hybrid", .sizes = {64, 64, 64, 64}};
      plan.change = [](DataParallelOptions& o) { o.optimizer.set("warmup", "fixed").set("warmup_steps", 2); };
      plan.gradients = {1, 2, 3, 4, 5, 6};
      const TempFolder folder;
      MethodOutcome whole;
      EXPECT_EQ(save_in_between(plan, folder / "step", &whole), 3);
      plan.bucket_bytes = bytes, plan.gradients = {4, 5, 6};
      plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
        CheckpointExtras extras;
        load_checkpoint(folder / "step", replica, comm, extras);
      };
      const std::vector<float> x = train_by(plan).x.back();
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(x[i], whole.x.back()[i], bytes == 512 ? 0 : 1e-6) << name << ", value " << i;
    }
}

// The bucket has one parameter, so one of the two workers of a node has none. The warm-up has 11 tests before step 12.
TEST(Checkpoint, WorkersWithoutAShardContinueInTheWarmup) {
  for (const char* name : {"one_bit_adam", "one_bit_lamb"}) {
    MethodPlan plan{.optimizer = name, .sharding = "hybrid", .sizes = {64}};
    plan.change = [](DataParallelOptions& o) { o.optimizer.set("warmup_steps", 20).set("beta2", 0.9); };
    plan.gradients.resize(12);
    std::iota(plan.gradients.begin(), plan.gradients.end(), 1);
    const TempFolder folder;
    plan.after_step = [&](DataParallel& replica, Communicator& comm) {
      if (replica.steps() == 9) save_checkpoint(folder / "step", replica, comm);
    };
    const std::vector<float> whole = train_by(plan).x.back();
    plan.gradients = {10, 11, 12}, plan.after_step = nullptr;
    plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
      CheckpointExtras extras;
      load_checkpoint(folder / "step", replica, comm, extras);
    };
    EXPECT_EQ(train_by(plan).x.back(), whole) << name;
  }
}

}  // namespace checkpoint_shards_test
}  // namespace godwit
