// Sharded parameters on ranks that share a GPU. Losses, weights, memory, evaluations and files must equal those of the
// CPU tests.
#include <gtest/gtest.h>

#include "tests/optim/checkpoint_harness.h"
#include "tests/optim/parameter_reads_checks.h"
#include "tests/optim/parameter_shards_checks.h"

namespace godwit {
namespace cuda_parameter_shards_test {

using namespace godwit::test;

const Placement kShared{"cuda", /*share_gpu=*/true, /*nccl=*/false};

class CudaParameterShards : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }
};

TEST_F(CudaParameterShards, ChangeNoBitOfANet) { expect_no_bit_changed({.placement = kShared}); }

TEST_F(CudaParameterShards, ChangeNoBitOfANetInBfloat16) {
  expect_no_bit_changed({.type = DType::bf16, .placement = kShared});
}

TEST_F(CudaParameterShards, ChangeNoBitOfRecomputedLayers) {
  for (const DType type : {DType::f32, DType::bf16})
    expect_no_bit_changed_by_recomputing({.type = type, .placement = kShared}, {kWeight + 4 * kWidth});
}

TEST_F(CudaParameterShards, HaveTheNormsOfZero2) { expect_norms_of_zero2({.placement = kShared}); }

TEST_F(CudaParameterShards, PeakMemoryIsTheShardsAndTwoBuckets) {
  expect_peak_of_shards_and_two_buckets({.topology = {1, 4}, .placement = kShared});
}

// Operations keep the bucket's memory for the backward pass, not their rounded copies of the weights.
TEST_F(CudaParameterShards, Bfloat16TakesNoMoreMemory) {
  NetPlan plan{.exchange = sharded("dense", "zero3"), .topology = {1, 4}, .placement = kShared};
  const NetRun wide = train(plan);
  plan.type = DType::bf16;
  const NetRun rounded = train(plan);
  for (size_t r = 0; r < 4; ++r) EXPECT_LE(rounded.peaks[r], wide.peaks[r] + kWeight / 2) << "of one operation";
}

TEST_F(CudaParameterShards, RanksEvaluateDifferentNumbersOfBatches) { expect_equal_uneven_evaluations(kShared); }

TEST_F(CudaParameterShards, ReadsGiveTheValuesOfParametersGatheredAtOnce) {
  expect_reads_of_values_gathered_at_once(kShared);
}

TEST_F(CudaParameterShards, ModelsAreSavedBucketByBucket) { expect_models_saved_by_bucket(kShared); }

TEST_F(CudaParameterShards, CheckpointsContinueWithTheSameBits) {
  for (const char* sharding : {"zero3", "hybrid"})
    for (const char* wire : {"f32", "bf16"}) {
      SCOPED_TRACE(detail::concat(sharding, ", ", wire));
      expect_resumed_alike({.optimizer = "adamw",
                            .exchange = "loco",
                            .sharding = sharding,
                            .parameter_wire = wire,
                            .placement = kShared});
    }
}

}  // namespace cuda_parameter_shards_test
}  // namespace godwit
