// Checks of sharded parameters for every device.
#pragma once
#include "tests/optim/net_harness.h"

namespace godwit::test {

inline void expect_same_training(const NetPlan& plan, const NetRun& expected) {
  const NetRun run = train(plan);
  SCOPED_TRACE(detail::concat(plan.exchange.text("sharding"), ", buckets of ", plan.bucket_bytes, " bytes, ",
                              plan.micro_batches, " micro-batches", plan.tied ? ", tied" : "",
                              plan.exchange.reshard_after_forward ? "" : ", no reshard"));
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_EQ(run.x, expected.x);
}

// Nets with and without tied parameters, with one and several micro-batches.
inline void expect_no_bit_changed(NetPlan plan) {
  const NetPlan base = plan;
  for (const bool tied : {false, true})
    for (const int micro_batches : {1, 2})
      for (const int64_t bytes : {int64_t{100}, kWeight + 4 * kWidth, int64_t{1} << 20}) {
        if (micro_batches == 2 && bytes != kWeight + 4 * kWidth) continue;
        plan = base;
        plan.bucket_bytes = bytes, plan.micro_batches = micro_batches, plan.tied = tied;
        const NetRun none = train(plan);
        for (const bool reshard : {true, false}) {
          plan.exchange = sharded("dense", "zero3");
          plan.exchange.reshard_after_forward = reshard;
          plan.threads = reshard ? 1 : 2;
          expect_same_training(plan, none);
        }
      }
}

inline void expect_no_bit_changed_by_recomputing(NetPlan plan, const std::vector<int64_t>& bucket_bytes) {
  const NetPlan base = plan;
  for (const bool tied : {false, true})
    for (const int micro_batches : {1, 2})
      for (const int64_t bytes : bucket_bytes) {
        plan = base;
        plan.bucket_bytes = bytes, plan.micro_batches = micro_batches, plan.tied = tied;
        const NetRun none = train(plan);
        plan.recompute = true;
        for (const char* sharding : {"zero3", "hybrid"})
          for (const bool reshard : {true, false}) {
            if (sharding[0] == 'h') plan.topology = {1, 4};  // as for zero3
            plan.exchange = sharded("dense", sharding);
            plan.exchange.reshard_after_forward = reshard;
            expect_same_training(plan, none);
          }
      }
}

inline void expect_norms_of_zero2(NetPlan plan) {
  plan.exchange = sharded("dense", "zero2"), plan.clip_norm = 0.5;
  const NetRun zero2 = train(plan);
  plan.exchange = sharded("dense", "zero3");
  const NetRun zero3 = train(plan);
  EXPECT_EQ(zero3.norms, zero2.norms);
  EXPECT_EQ(zero3.x, zero2.x);
}

// zero3 on one node, hybrid on several nodes. Between steps, a worker has 1/shards of the parameters and state. A step
// adds two buckets with parameters and gradients, two messages of 1/shards of a bucket, and the activations.
inline void expect_peak_of_shards_and_two_buckets(NetPlan plan) {
  plan.exchange = "dense";
  const NetRun none = train(plan);
  plan.exchange = sharded("dense", plan.topology.nodes > 1 ? "hybrid" : "zero3");
  const NetRun run = train(plan);
  const int64_t shards = plan.topology.workers_per_node;
  constexpr int64_t kPadding = kLayers * 2 * 4 * 64;  // m and v have no padding
  for (size_t r = 0; r < run.peaks.size(); ++r) {
    EXPECT_LE(run.between[r], kLayers * kBucket * 3 / shards + 1024) << "parameters, m and v";
    EXPECT_GE(none.between[r], kLayers * kBucket * 4 - kPadding) << "parameters, gradients, m and v";
    EXPECT_LE(run.peaks[r], none.peaks[r] + 4 * kBucket + 2 * kBucket / shards);
  }
  plan.exchange.reshard_after_forward = false;
  EXPECT_GE(train(plan).peaks[0], kLayers * kBucket) << "all parameters stay until the backward pass";
}

}  // namespace godwit::test
