// Complete steps of several ranks that share a GPU. With equal gradients, all final values must match the CPU bit for
// bit.
#include <gtest/gtest.h>

#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_methods_test {

using test::MethodOutcome;
using test::MethodPlan;

const Placement kShared{"cuda", /*share_gpu=*/true, /*nccl=*/false};

class CudaMethods : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }

  static void expect_same(MethodPlan plan) {
    SCOPED_TRACE(
        detail::concat(plan.optimizer, " on ", plan.topology.nodes, " nodes of ", plan.topology.workers_per_node));
    const MethodOutcome here = train_by(plan);
    plan.placement = kShared;
    const MethodOutcome there = train_by(plan);
    EXPECT_TRUE(there.same(here));
    EXPECT_EQ(there.x, here.x);
    EXPECT_EQ(there.skipped, here.skipped);
    EXPECT_EQ(there.reasons, here.reasons);
  }
};

const std::vector<std::string> kOptimizers{"sgdm",        "adam",   "adamw",        "bert_adam",
                                           "softsignsgd", "birder", "one_bit_adam", "zero_one_adam"};

TEST_F(CudaMethods, TrainingMatchesTheCpuBitForBit) {
  for (const std::string& optimizer : kOptimizers)
    for (const Topology topology : {Topology{2, 2}, Topology{1, 3}}) {
      MethodPlan plan{.optimizer = optimizer, .topology = topology};
      plan.gradients = {1, 2, 3, 4};
      expect_same(plan);
    }
  expect_same({.optimizer = "birder", .topology = {8, 1}});
  expect_same({.optimizer = "one_bit_adam", .topology = {8, 1}});
}

// Values get their second moment after v is frozen.
TEST_F(CudaMethods, LateGradientsMatchTheCpu) {
  for (const char* optimizer : {"one_bit_adam", "one_bit_lamb", "zero_one_adam"}) {
    MethodPlan plan{.optimizer = optimizer, .gradients = {1, 2, 3, 4, 5, 6, 7}, .late = 4};
    plan.change = [](DataParallelOptions& o) {
      o.optimizer.set("warmup_steps", 2);
      test::set_if_known(o.optimizer, "warmup", "fixed");
      if (o.optimizer.has("intervals")) o.optimizer.set("intervals", "fixed").set("max_interval", 2);
    };
    expect_same(plan);
  }
}

TEST_F(CudaMethods, ClippingAccumulationAndSkippingMatchTheCpu) {
  for (const std::string& optimizer : kOptimizers) {
    MethodPlan plan{.optimizer = optimizer};
    plan.gradients = {1, 0, 2, 3};
    plan.bad = std::numeric_limits<double>::quiet_NaN();
    plan.skip = true;
    plan.clip = 1e-4;
    plan.micro_batches = 3;
    plan.weight_decay = 0.1;
    expect_same(plan);
  }
}

TEST_F(CudaMethods, ClippingNamesTheStepAndTheNonFiniteParameter) {
  const auto error = [](const char* optimizer, const char* sharding) {
    return error_of([&] {
      const auto body = [&](Communicator& comm) {
        const std::vector<Var> vars{Var(Tensor::full({40}, 1), true), Var(Tensor::full({30}, 1), true)};
        DataParallelOptions options{.optimizer = optimizer};
        options.exchange.set("sharding", sharding);
        options.clip_norm = 1;
        DataParallel replica({{"p0", vars[0]}, {"p1", vars[1]}}, comm, options);
        replica.step(test::method_loss(vars, comm.rank, 1, 0, 0), 0.1);
        replica.step(test::method_loss(vars, comm.rank, 0, INFINITY, 0), 0.1);
        replica.finish_checks();
      };
      run_local({2, 2}, body, {.placement = kShared});
    });
  };
  const std::string start = "clip: step 2: the norm of the gradients is inf: the norm of 'p1' is not finite";
  EXPECT_NE(error("adamw", "none").find(start + ";"), std::string::npos) << error("adamw", "none");
  EXPECT_NE(error("adamw", "zero2").find(start + ";"), std::string::npos) << error("adamw", "zero2");
  EXPECT_NE(error("birder", "none").find(start + " on rank 2;"), std::string::npos) << error("birder", "none");
}

// Memory of gradients and parameters is acquired and released while other buckets are being exchanged. Each sharding
// and each exchange trains with and without clipping.
TEST_F(CudaMethods, ShardedTrainingMatchesTheCpu) {
  int number = 0;
  for (const char* sharding : {"zero2", "zero3", "hybrid"})
    for (const char* exchange : {"dense", "loco", "loco_zeropp"}) {
      MethodPlan plan{.optimizer = "adamw", .exchange = exchange, .sharding = sharding};
      plan.sizes = {40, 700, 64, 256, 130, 300, 90, 1000, 20, 500};
      plan.gradients = {1, 2, 3, 4};
      plan.clip = number++ % 2 == 0 ? 0 : 1e-4;
      SCOPED_TRACE(detail::concat(sharding, ", ", exchange, ", clip ", plan.clip));
      expect_same(plan);
      plan.micro_batches = 2, plan.skip = true, plan.gradients = {1, 0, 2};
      plan.bad = std::numeric_limits<double>::infinity();
      plan.clip = 1e-4 - plan.clip;
      expect_same(plan);
    }
}

TEST_F(CudaMethods, ShardedParametersMatchTheCpuWithEveryExchange) {
  for (const std::string& exchange : method_names<ExchangeMethod>())
    for (const char* sharding : {"zero3", "hybrid"}) {
      SCOPED_TRACE(detail::concat(sharding, ", ", exchange));
      if (sharding[0] == 'z' && !ExchangeConfig(exchange).method().supports_zero2) continue;
      expect_same({.optimizer = "adamw", .exchange = exchange, .sharding = sharding});
    }
}

TEST_F(CudaMethods, ShardedParametersMatchTheCpuWithEveryOptimizer) {
  for (const std::string& optimizer : kOptimizers)
    for (const char* sharding : {"zero3", "hybrid"}) {
      if (sharding[0] == 'z' && OptimizerConfig(optimizer).method().communicates_itself) continue;
      MethodPlan plan{.optimizer = optimizer, .sharding = sharding};
      expect_same(plan);
      plan.clip = 1e-4;
      expect_same(plan);
    }
}

TEST_F(CudaMethods, GatheredParametersAreRoundedAsOnTheCpu) {
  for (const char* sharding : {"zero3", "hybrid"})
    for (const char* wire : {"bf16", "int8"}) {
      SCOPED_TRACE(detail::concat(sharding, ", ", wire));
      expect_same({.optimizer = "adamw", .sharding = sharding, .parameter_wire = wire});
    }
}

}  // namespace cuda_methods_test
}  // namespace godwit
