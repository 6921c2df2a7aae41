// Exchanges between ranks that share a GPU. Means, state and bytes sent must match the CPU bit for bit.
#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "comm/buckets/sharding.h"
#include "comm/exchange/block_exchange.h"
#include "comm/exchange/dense.h"
#include "comm/exchange/ef21.h"
#include "comm/exchange/loco.h"
#include "comm/exchange/power_sgd.h"
#include "comm/exchange/terngrad.h"
#include "comm/transport/local.h"
#include "tests/gpu_memory.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_exchange_test {

std::vector<uint8_t> bytes_of(const Tensor& x) {
  const Tensor here = x.to(kCpu);
  const auto* at = static_cast<const uint8_t*>(here.address());
  return {at, at + here.bytes()};
}

struct Run {
  std::vector<std::vector<uint8_t>> bytes;  // means and state of all ranks, in order
  std::vector<std::string> what;            // name of each entry
  std::vector<int64_t> sent;
  std::string summary;
};

struct Plan {
  ExchangeConfig config = "dense";
  Topology topology = {3, 1};
  std::vector<Shape> shapes{{100}, {1}, {8, 9}, {40, 33}, {700}, {3}};
  int64_t steps = 4;
};

// Runs a few steps with gradients of many magnitudes; parameters follow their means.
Run run(const Plan& plan, const Placement& placement) {
  std::vector<Run> of_ranks(static_cast<size_t>(plan.topology.world()));
  const auto body = [&](Communicator& comm) {
    Run& run = of_ranks[static_cast<size_t>(comm.rank)];
    std::vector<Parameter> parameters;
    for (const Shape& shape : plan.shapes)
      parameters.push_back({"p" + std::to_string(parameters.size()), Var(Tensor::full(shape, 0.5), true), true});
    Buckets buckets(parameters, {4000, 4000, int64_t{32} * plan.topology.world()});
    const ExchangeConfig& config = plan.config;
    const auto keep = [&run](std::string what, const Tensor& x) {
      run.what.push_back(std::move(what));
      run.bytes.push_back(bytes_of(x));
    };
    const std::optional<int64_t> block_size = config.shard_unit();
    if (config.sharding != Sharding::none) shard(buckets, comm, block_size);
    const auto exchange = make_exchange(config, buckets, comm, 42);
    std::optional<ParameterGather> sharded;
    if (config.sharding != Sharding::none) sharded.emplace(buckets, config.parameter_wire, config.block_size());
    for (int64_t step = 1; step <= plan.steps; ++step)
      for (Bucket& bucket : buckets) {
        const auto stream = static_cast<uint32_t>(100 * step + 10 * bucket.index + comm.rank);
        auto g = random_values<float>(bucket.padded_numel(), stream);
        for (int64_t i = 0; i < bucket.padded_numel(); ++i)
          if (i >= bucket.numel || i % 11 == 3) g[static_cast<size_t>(i)] = 0;
        bucket.grad.copy_from(Tensor::of(g, bucket.grad.shape()));
        exchange->mean(bucket, comm, step);
        const Segment& owned = bucket.owned;
        const Tensor mean = bucket.grad.range(owned.begin, owned.numel());
        keep(detail::concat("step ", step, ", the mean of bucket ", bucket.index, " on rank ", comm.rank), mean);
        if (!sharded) continue;
        sharded->before_update(bucket);
        bucket.param.range(owned.begin, owned.numel()).copy_from(mean);
        sharded->after_update(bucket, *comm.world);
        keep("parameters", bucket.param);
      }
    for (const StateTensor& part : exchange->state()) keep("state " + part.name, part.values);
    if (sharded) {
      for (const StateTensor& part : sharded->state()) keep("state " + part.name, part.values);
      sharded->with_master_weights(buckets, *comm.world, [&] {
        for (const Bucket& bucket : buckets) keep("masters", bucket.param);
      });
    }
    run.summary = exchange->summary(*comm.world);
    run.sent.push_back(comm.stats->total().bytes_intra + comm.stats->total().bytes_inter);
  };
  run_local(plan.topology, body, {.threads_per_rank = 1, .placement = placement});
  Run all;
  for (const Run& run : of_ranks) {
    all.bytes.insert(all.bytes.end(), run.bytes.begin(), run.bytes.end());
    all.what.insert(all.what.end(), run.what.begin(), run.what.end());
    all.sent.push_back(run.sent[0]);
    all.summary += run.summary;
  }
  return all;
}

const Placement kOneGpu{"cuda:0", false, false};

void expect_same(const Plan& plan) {
  ::testing::Message trace;
  trace << plan.config.name() << ", " << plan.topology.nodes << " × " << plan.topology.workers_per_node;
  for (const Option& option : plan.config.list()) trace << ", " << option.name << " " << value_text(option);
  SCOPED_TRACE(trace);
  const Run here = run(plan, {}), there = run(plan, kOneGpu);
  ASSERT_EQ(there.what, here.what);
  for (size_t i = 0; i < here.bytes.size(); ++i) ASSERT_EQ(there.bytes[i], here.bytes[i]) << here.what[i];
  EXPECT_EQ(there.sent, here.sent);
  EXPECT_EQ(there.summary, here.summary);
}

class CudaExchange : public OnGpu {};

Plan loco(int64_t bits, const std::string& scale) {
  return {.config = LocoOptions{.bits = bits, .scale = scale, .block_size = 50}};
}

TEST_F(CudaExchange, LocoMatchesTheCpu) {
  for (const int64_t bits : {1, 4, 8})
    for (const char* scale : {"auto", "2^3"}) {
      Plan plan = loco(bits, scale);
      expect_same(plan);
      LocoOptions& options = plan.config.as<LocoOptions>();
      options.error_rounding = LocoOptions::Rounding::nearest, options.error_gain_new = 0.2;
      options.clip_element = 0.7, options.reset_every = 2;
      plan.topology = {2, 2};
      expect_same(plan);
    }
}

TEST_F(CudaExchange, LocoWithLargeBlocksMatchesTheCpu) {
  for (const int64_t bits : {1, 4}) {
    Plan plan = loco(bits, "auto");
    plan.config.set("block_size", 0);
    plan.shapes = {{17}, {20001}, {1}, {8192}, {140000}};
    plan.steps = 2;
    expect_same(plan);
  }
}

TEST_F(CudaExchange, LocoWithShardingMatchesTheCpu) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2})
    for (const ParameterWire wire : {ParameterWire::f32, ParameterWire::bf16}) {
      Plan plan = loco(4, "auto");
      plan.config.sharding = sharding, plan.config.parameter_wire = wire;
      expect_same(plan);
    }
}

Plan plan_of(const ExchangeConfig& config) { return {.config = config}; }

TEST_F(CudaExchange, DenseAndHierarchicalMatchTheCpu) {
  for (const char* name : {"dense", "hierarchical"})
    for (const char* wire : {"f32", "bf16", "f16"}) {
      Plan plan = plan_of(name);
      plan.config.set("wire", wire);
      plan.topology = {2, 2};
      plan.steps = 2;
      expect_same(plan);
    }
}

TEST_F(CudaExchange, EightAndFourBitsMatchTheCpu) {
  expect_same(plan_of(DenseOptions{.wire = DenseOptions::Wire::int8}));
  Plan plan = plan_of("zeropp");
  plan.config.set("block_size", 60);
  expect_same(plan);
  plan.config.sharding = Sharding::none, plan.config.parameter_wire = ParameterWire::f32;
  expect_same(plan);
}

TEST_F(CudaExchange, StochasticLevelsMatchTheCpu) {
  for (const int64_t levels : {1, 7, 127}) {
    Plan plan = plan_of("qsgd");
    plan.config.set("levels", levels).set("block_size", 33).set("reply", levels == 7 ? "coded" : "f32");
    if (levels > 1) plan.config.set("error_feedback", levels == 7 ? "both" : "worker");
    plan.steps = 3;
    expect_same(plan);
  }
  for (const double sigma : {0.0, 2.5}) {
    Plan plan = plan_of(TernGradOptions{.block_size = 100, .clip_sigma = sigma});
    plan.steps = 2;
    expect_same(plan);
  }
}

TEST_F(CudaExchange, SignsMatchTheCpu) {
  for (const char* name : {"one_bit_sgd", "signsgd", "ef_signsgd"}) {
    Plan plan = plan_of(name);
    if (plan.config.has("block_size")) plan.config.set("block_size", 100);
    plan.steps = 3;
    expect_same(plan);
    plan.topology = {1, 1};
    plan.steps = 1;
    expect_same(plan);
  }
}

TEST_F(CudaExchange, TopKMatchesTheCpu) {
  for (const double density : {0.01, 0.3, 1.0}) {
    Plan plan = plan_of("topk");
    plan.config.set("density", density).set("block_size", density == 0.3 ? 50 : 0);
    plan.config.set("reply", density == 0.3 ? "f32" : "none");
    plan.steps = 2;
    expect_same(plan);
  }
  Plan large = plan_of("topk");  // needs 32-bit positions
  large.shapes = {{65537}};
  large.steps = 1;
  large.topology = {1, 1};
  expect_same(large);
}

TEST_F(CudaExchange, RandomKMatchesTheCpu) {
  for (const char* feedback : {"worker", "none"}) {
    Plan plan = plan_of("randomk");
    plan.config.set("density", 0.2).set("error_feedback", feedback).set("block_size", 60);
    plan.steps = 3;
    expect_same(plan);
  }
}

TEST_F(CudaExchange, PowerSgdMatchesTheCpu) {
  for (const int64_t rank : {1, 3}) {
    Plan plan = plan_of(PowerSgdOptions{.rank = rank});
    if (rank == 3) plan.config.set("error_feedback", "none");
    plan.topology = {2, 1};
    plan.steps = 3;
    plan.shapes = {{100}, {1}, {8, 9}, {40, 33}, {5, 3, 20}, {3}};
    expect_same(plan);
  }
}

// Columns of several pieces, more columns than a block of threads processes at a time, and rows of several tiles.
TEST_F(CudaExchange, PowerSgdWithLargeMatricesMatchesTheCpu) {
  for (const int64_t rank : {2, 33}) {
    Plan plan = plan_of(PowerSgdOptions{.rank = rank});
    plan.topology = {2, 1};
    plan.steps = 1;
    plan.shapes = rank == 2 ? std::vector<Shape>{{18000, 5}, {257, 130}} : std::vector<Shape>{{80, 93}, {129, 64}};
    expect_same(plan);
  }
}

TEST_F(CudaExchange, EstimatesMatchTheCpu) {
  for (const char* compressor : {"topk", "one_bit"})
    for (const char* reply : {"f32", "none"}) {
      Plan plan = plan_of(Ef21Options{.block_size = 90});
      plan.config.set("compressor", compressor).set("reply", reply);
      if (compressor == std::string("topk")) plan.config.set("density", 0.1);
      plan.steps = 2;
      expect_same(plan);
    }
}

TEST_F(CudaExchange, LocoWithParameterBlocksMatchesTheCpu) {
  Plan plan = plan_of("loco_zeropp");
  plan.config.set("block_size", 70);
  plan.steps = 2;
  expect_same(plan);
}

TEST_F(CudaExchange, LocoSumsOverManyRanks) {
  Plan plan = loco(8, "auto");
  plan.topology = {5, 1};
  plan.shapes = {{77}};
  expect_same(plan);
  plan.topology = {1, 1};
  expect_same(plan);
}

TEST_F(CudaExchange, RefusesNonFiniteGradients) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const char* name : {"loco", "qsgd", "one_bit_sgd", "topk", "signsgd", "randomk", "powersgd"}) {
      const std::string text = error_of([&] {
        run_local({2, 1},
                  [&](Communicator& comm) {
                    Buckets buckets({{"w", Var(Tensor::zeros({70}), true), true}}, {4000, 4000, 64});
                    const auto exchange = make_exchange(name, buckets, comm, 42);
                    std::vector<float> g(static_cast<size_t>(buckets[0].padded_numel()), 1);
                    if (comm.rank == 1) g[33] = bad;
                    buckets[0].grad.copy_from(Tensor::of(g, buckets[0].grad.shape()));
                    exchange->mean(buckets[0], comm, 1);
                  },
                  {.placement = kOneGpu});
      });
      EXPECT_THAT(text, ::testing::HasSubstr(name + std::string(": step 1: the gradient of 'w' is")));
      EXPECT_THAT(text, ::testing::HasSubstr("at element 33"));
    }
  }
}

// A custom compressor whose format() names no kernels.
class Plain : public Compressor {
 public:
  int64_t payload_words(int64_t n) const override { return n; }
  void encode(const float* x, int64_t n, const BlockRng&, uint32_t* code) const override {
    for (int64_t i = 0; i < n; ++i) code[i] = std::bit_cast<uint32_t>(x[i]);
  }
  void decode(const uint32_t* code, int64_t n, float* x) const override {
    for (int64_t i = 0; i < n; ++i) x[i] = std::bit_cast<float>(code[i]);
  }
};

TEST_F(CudaExchange, RefusesACompressorWithoutKernels) {
  const auto mean_of_ones = [](const Placement& placement) {
    run_local({2, 1},
              [](Communicator& comm) {
                Buckets buckets({{"w", Var(Tensor::zeros({70}), true), true}}, {4000, 4000, 64});
                const auto exchange = block_exchange(std::make_unique<Plain>(), {.name = "plain"}, buckets, comm, 42);
                buckets[0].grad.fill(1);
                exchange->mean(buckets[0], comm, 1);
                EXPECT_EQ(buckets[0].grad.item(69), 1);
              },
              {.placement = placement});
  };
  mean_of_ones({});
  const std::string text = error_of([&] { mean_of_ones(kOneGpu); });
  EXPECT_THAT(text, ::testing::HasSubstr("this compressor has no GPU kernels, since its format() names none"));
  EXPECT_THAT(text, ::testing::HasSubstr("train on the CPU, or use an exchange with kernels"));
}

}  // namespace cuda_exchange_test
}  // namespace godwit
