#include "comm/buckets/parameter_shards.h"

#include <gtest/gtest.h>

#include "autograd/leaf.h"
#include "optim/ema.h"
#include "tests/comm/waiting_groups.h"
#include "tests/optim/parameter_shards_checks.h"
#include "tests/support.h"

namespace godwit {
namespace parameter_shards_test {

using namespace godwit::test;

TEST(ParameterShards, ChangeNoBitOfANet) { expect_no_bit_changed({}); }

TEST(ParameterShards, ChangeNoBitOfRecomputedLayers) {
  expect_no_bit_changed_by_recomputing({}, {100, kWeight + 4 * kWidth, 3 * kWeight});
}

TEST(ParameterShards, HaveTheNormsOfZero2) { expect_norms_of_zero2({}); }

TEST(ParameterShards, PeakMemoryIsTheShardsAndTwoBuckets) {
  expect_peak_of_shards_and_two_buckets({.topology = {1, 4}});
}

TEST(HybridSharding, PeakMemoryIsTheShardsAndTwoBuckets) {
  expect_peak_of_shards_and_two_buckets({.topology = {2, 2}});
}

TEST(ParameterShards, ChangeNoBitOfCodedGradientsAndParameters) {
  for (const char* exchange : {"dense", "loco", "zeropp", "loco_zeropp"})
    for (const char* wire : {"f32", "bf16", "int8"}) {
      ShardPlan plan{.exchange = sharded(exchange, "zero2", wire), .topology = {3, 2}, .steps = 3};
      const ShardRun zero2 = train_sharded(plan);
      plan.exchange.set("sharding", "zero3");
      const ShardRun zero3 = train_sharded(plan);
      EXPECT_EQ(zero3.x, zero2.x) << exchange << ", " << wire;
      EXPECT_EQ(zero3.masters, zero2.masters) << exchange << ", " << wire;
    }
}

TEST(ParameterShards, BytesEqualTheFormulas) {
  const int64_t part = 3 * kBucket / 4;  // of a bucket, to three workers
  const auto check_bytes = [&](NetPlan plan, int64_t gathers, const char* what) {
    plan.exchange = sharded("dense", "zero3");
    plan.topology = {1, 4};
    plan.exchange.reshard_after_forward = gathers > kLayers;
    for (const std::map<std::string, CommCount>& stats : train(plan).stats) {
      EXPECT_EQ(stats.at("parameters/all_gather").bytes_intra, gathers * part) << what;
      EXPECT_EQ(stats.at("dense/reduce_scatter").bytes_intra, kLayers * part) << what;
    }
  };
  // The last two buckets of the forward pass are the first two of the backward pass.
  check_bytes({}, 2 * kLayers - 2, "reshard");
  check_bytes({.tied = true}, 2 * kLayers, "the tied matrix is used at both ends of both passes");
  check_bytes({.micro_batches = 2}, 2 * (2 * kLayers - 2) - 2, "two buckets stay between micro-batches");
  check_bytes({}, kLayers, "no reshard");
  check_bytes({.recompute = true}, kLayers, "no reshard, recompute");
}

// Each layer of a pair is read twice in the backward pass. While one is read, the other one is expected next.
TEST(ParameterShards, RecomputedLayersAreGatheredOnce) {
  NetPlan plan{.exchange = sharded("dense", "zero3"), .topology = {1, 4}, .recompute = true};
  for (const std::map<std::string, CommCount>& stats : train(plan).stats)
    EXPECT_EQ(stats.at("parameters/all_gather").bytes_intra, (2 * kLayers - 1) * 3 * kBucket / 4);
}

// The computing thread communicates in the forward pass, as synchronized batch norm does.
TEST(ParameterShards, AreNotGatheredWhileTheComputingThreadCommunicatesIfKernelsWait) {
  for (const char* sharding : {"zero3", "hybrid"}) {
    std::vector<std::shared_ptr<test::CallLog>> logs(2);
    run_local({1, 2}, [&](Communicator& host) {
      auto& log = logs[static_cast<size_t>(host.rank)] = std::make_shared<test::CallLog>();
      Communicator comm = test::with_waiting_groups(host, log);
      const Layers net;
      DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", sharding)};
      options.buckets = {kBucket, kBucket};
      DataParallel replica(net.parameters(), comm, options);
      for (int64_t step = 0; step < 3; ++step) {
        replica.begin_step(0.01);
        for (const Var& bias : net.biases) {
          const Tensor all({2});
          EXPECT_EQ(bias.value().numel(), kWidth);
          comm.compute->all_gather(Tensor::full({1}, 1), all, "batch_norm");
        }
        replica.backward(net.loss(comm.rank, step));
        replica.finish_step();
      }
    });
    EXPECT_FALSE(logs[0]->concurrent || logs[1]->concurrent) << "two threads of a rank communicated concurrently";
    EXPECT_EQ(logs[0]->phases, logs[1]->phases);
  }
}

TEST(HybridSharding, BytesOfEachLevelEqualTheFormulas) {
  for (const auto& [nodes, workers] : {std::pair{2, 2}, {4, 1}, {1, 4}}) {
    const NetPlan plan{.exchange = sharded("dense", "hybrid"), .topology = {nodes, workers}};
    const int64_t part = kBucket / workers;
    for (const std::map<std::string, CommCount>& stats : train(plan).stats) {
      for (const auto& [name, gathers] :
           {std::pair{"parameters/all_gather", 2 * kLayers - 2}, {"hybrid/reduce_scatter", kLayers}}) {
        EXPECT_EQ(stats.at(name).bytes_intra, gathers * part * (workers - 1)) << name;
        EXPECT_EQ(stats.at(name).bytes_inter, 0) << name;
      }
      EXPECT_EQ(stats.at("dense/all_reduce").bytes_intra, 0);
      EXPECT_EQ(stats.at("dense/all_reduce").bytes_inter, 2 * kLayers * part * (nodes - 1) / nodes);
    }
  }
}

// Without memory for the whole model, each worker computes the same values of its shards from the same seed.
TEST(ParameterShards, InitialValuesAreComputedByTheirOwners) {
  for (const char* sharding : {"zero3", "hybrid"})
    run_local({2, 2}, [&](Communicator& comm) {
      DataParallelOptions options{.optimizer = "adamw"};
      options.buckets = {1 << 16, 1 << 16};
      uint64_t expected = 0;
      {
        const Stack usual;
        expected = DataParallel(usual.parameters(), comm, options).value_hash();
      }
      context().pool->reset_peak();
      const nn::DeferParameters defer;
      const Stack model;
      options.exchange = sharded("dense", sharding);
      DataParallel replica(model.parameters(), comm, options);
      const PoolStats stats = context().pool->stats();
      EXPECT_LE(stats.peak_bytes_in_use, stats.bytes_in_use + (1 << 14)) << "no temporary memory";
      EXPECT_EQ(replica.value_hash(), expected);
    });
}

// The nodes have different initial values, as if they had read different files.
TEST(HybridSharding, RefusesOtherInitialValuesOnAnotherNode) {
  const auto start = [](Communicator& comm) {
    const nn::DeferParameters defer;
    const Stack model(comm.node() == 0 ? 7 : 8);
    DataParallel(model.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "hybrid")});
  };
  EXPECT_NE(error_of([&] { run_local({2, 2}, start); }).find("ranks disagree on the initial weights: ranks 2 and 3"),
            std::string::npos);
}

// All ranks compare the first values of a deferred parameter; the nodes compare all values of a shard.
TEST(HybridSharding, RefusesOtherInitialValuesInAShardOfAnotherNode) {
  const auto start = [](Communicator& comm) {
    const auto fill = [&](const Tensor& part, int64_t begin) {
      part.fill(0);
      const int64_t i = 700 - begin;
      if (i >= 0 && i < part.numel()) part.data<float>()[i] = static_cast<float>(comm.node());
    };
    const std::vector<Parameter> parameters = {{"w", Leaf::deferred({1024}, DType::f32, fill)}};
    DataParallel(parameters, comm, {.optimizer = "adamw", .exchange = sharded("dense", "hybrid")});
  };
  const std::string error = error_of([&] { run_local({2, 2}, start); });
  EXPECT_NE(error.find("ranks disagree on the initial weights of a shard (ranks are nodes): rank 1 differs from the "
                       "rest; load the same weights on all nodes"),
            std::string::npos)
      << error;
}

// Each worker averages its shard; evaluations gather the averages.
TEST(ParameterShards, WeightAveragesAreThoseWithoutSharding) {
  std::map<std::string, std::vector<double>> averages, values;
  for (const std::string sharding : {"none", "zero3"})
    run_local({2, 2}, [&](Communicator& comm) {
      const Layers net;
      std::unique_ptr<Ema> ema;
      DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", sharding)};
      options.buckets = {kBucket, kBucket};
      options.updated = [&](const Bucket& bucket, const StepInfo& step) { ema->update(bucket, step.step); };
      DataParallel replica(net.parameters(), comm, options);
      ema = std::make_unique<Ema>(replica.updated_buckets(), std::vector<Tensor>{}, 0.5);
      for (int64_t step = 0; step < 3; ++step) replica.step(net.loss(comm.rank, step));
      const auto read = [&](auto& to) {
        replica.with_all_parameters([&] {
          if (comm.rank == 0) to[sharding] = values_of(replica.buckets());
        });
      };
      ema->complete([&](const Bucket& bucket, const Tensor& x) { replica.gather(bucket, x); });
      ema->swap();
      read(averages);
      ema->swap();
      read(values);
    });
  EXPECT_EQ(averages["zero3"], averages["none"]);
  EXPECT_EQ(values["zero3"], values["none"]);
  EXPECT_NE(values["zero3"], averages["zero3"]);
}

TEST(ParameterShards, AreUnchangedAfterAnError) {
  run_local({1, 2}, [](Communicator& comm) {
    const Layers net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "zero3")});
    const uint64_t before = replica.value_hash();
    const auto change = [&] {
      net.biases[0].value().fill(7);
      fail("not completed");
    };
    EXPECT_EQ(error_of([&] { replica.with_master_weights(change); }), "not completed");
    EXPECT_EQ(replica.value_hash(), before);
  });
}

TEST(ParameterShards, ShardingMustBeChosen) {
  const auto start = [](Communicator& comm) {
    const Stack model;
    DataParallel(model.parameters(), comm, {.optimizer = "adamw", .exchange = sharded("dense", "auto")});
  };
  EXPECT_NE(error_of([&] { run_local({2, 2}, start); }).find("sharding is auto"), std::string::npos);
}

// The gradient of a node: the mean over its workers, added in rank order, in the type of the parameters.
GradientOf node_mean(int workers, DType dtype) {
  return [=](int node, int64_t step, int64_t element, double x) {
    const auto mean = [&]<class T>(T sum) {
      for (int j = 0; j < workers; ++j) {
        const T g = static_cast<T>(noisy_gradient(node * workers + j, step, element, x));
        sum = j == 0 ? g : sum + g;
      }
      return static_cast<double>(sum / static_cast<T>(workers));
    };
    return dtype == DType::f64 ? mean(double{}) : mean(float{});
  };
}

// Hybrid sharding of n × m workers trains as n workers without sharding that have the mean gradients of the nodes.
void expect_trains_as_nodes(ShardPlan plan, const std::string& what) {
  const int workers = plan.topology.workers_per_node;
  plan.exchange.set("sharding", "hybrid");
  const ShardRun hybrid = train_sharded(plan);
  plan.exchange.set("sharding", "none");
  plan.topology.workers_per_node = 1;
  plan.gradient = node_mean(workers, plan.dtype);
  EXPECT_EQ(hybrid.x, train_sharded(plan).x) << what;
}

TEST(HybridSharding, TrainsAsOneWorkerPerNodeWithEveryExchange) {
  for (const std::string& name : method_names<ExchangeMethod>()) {
    ExchangeConfig exchange = name;
    exchange.set("parameter_wire", "f32");
    expect_trains_as_nodes({.exchange = exchange, .topology = {2, 3}, .steps = 4}, name);
    if (exchange.has("bits") && name.starts_with("loco"))
      for (const std::string bits : {"1", "8"}) {
        exchange.set("bits", bits);
        expect_trains_as_nodes({.exchange = exchange, .topology = {2, 3}, .steps = 4}, name + " of " + bits + " bits");
      }
  }
}

TEST(HybridSharding, TrainsAsOneWorkerPerNodeWithEveryOptimizer) {
  for (const std::string& name : method_names<OptimizerMethod>()) {
    OptimizerConfig optimizer = name;
    if (optimizer.has("warmup_steps")) optimizer.set("warmup_steps", 3);
    if (optimizer.has("max_interval")) optimizer.set("max_interval", 1);
    expect_trains_as_nodes({.optimizer = optimizer, .topology = {3, 2}, .steps = 5}, name);
  }
  expect_trains_as_nodes({.topology = {1, 4}, .steps = 3}, "one node");
}

// The second moments settle before the limit of the warm-up. With 20 steps, the warm-up ends at its limit.
TEST(HybridSharding, TheWarmupEndsAsWithoutSharding) {
  for (const char* name : {"one_bit_adam", "one_bit_lamb"})
    for (const int64_t limit : {20, 90}) {
      OptimizerConfig optimizer = name;
      optimizer.set("warmup_steps", limit).set("beta2", 0.95);
      ShardPlan plan{.optimizer = optimizer, .topology = {2, 3}, .steps = 100};
      plan.shapes = {{3000}, {41, 70}, {100}};
      expect_trains_as_nodes(plan, name);
      plan.optimizer.set("warmup", "fixed");
      const auto fixed = train_sharded(plan).x;
      plan.optimizer.set("warmup", "auto");
      EXPECT_EQ(train_sharded(plan).x == fixed, limit == 20) << name;
    }
}

TEST(HybridSharding, HasTheBitsOfHierarchical) {
  ShardPlan plan{.exchange = "hierarchical", .topology = {3, 4}, .steps = 6};
  const ShardRun none = train_sharded(plan);
  plan.exchange = sharded("dense", "hybrid");
  EXPECT_EQ(train_sharded(plan).x, none.x) << "with a power of two of workers per node, dividing twice rounds once";
}

TEST(HybridSharding, HasTheBitsOfBirderWithoutSharding) {
  for (const Topology& topology : {Topology{2, 2}, Topology{3, 3}}) {
    ShardPlan plan{.optimizer = "birder", .topology = topology};
    const ShardRun none = train_sharded(plan);
    plan.exchange = sharded("dense", "hybrid");
    EXPECT_EQ(train_sharded(plan).x, none.x);
  }
}

// Shards begin at the beginnings of the wire's blocks, of 1024 values.
TEST(HybridSharding, BlocksOfTheInt8WireDoNotDependOnTheWorkers) {
  for (const char* optimizer : {"adamw", "birder"}) {
    ShardPlan plan{.optimizer = optimizer, .exchange = sharded("dense", "hybrid", "int8"), .topology = {2, 3}};
    plan.shapes = {{10000}, {41, 7}};
    plan.steps = 40, plan.bucket_bytes = 1 << 20;
    const ShardRun several = train_sharded(plan);
    plan.topology.workers_per_node = 1;
    plan.gradient = node_mean(3, plan.dtype);
    EXPECT_EQ(several.x, train_sharded(plan).x) << optimizer;
  }
}

// Shards are whole blocks of the optimizer, of 96 values, and of the wire, of 1024 values.
TEST(HybridSharding, ShardsAreBlocksOfTheOptimizerAndOfTheInt8Wire) {
  ShardPlan plan{.optimizer = "one_bit_adam", .exchange = sharded("dense", "hybrid", "int8"), .topology = {1, 2}};
  plan.optimizer.set("warmup", "fixed").set("warmup_steps", 1).set("refresh_variance", false).set("block_size", 96);
  plan.shapes = {{7000}};
  plan.steps = 1, plan.bucket_bytes = 1 << 20;
  EXPECT_EQ(train_sharded(plan).shards[1].begin, 3 * 1024);
}

// With four workers per node, hybrid sharding has the bits of hierarchical. The norms differ in the order of summation.
TEST(HybridSharding, ClipsByTheNormOfTheMeanGradient) {
  ShardPlan plan{.exchange = "hierarchical", .topology = {2, 4}, .steps = 4, .clip_norm = 0.5};
  const ShardRun none = train_sharded(plan);
  plan.exchange = sharded("dense", "hybrid");
  const ShardRun hybrid = train_sharded(plan);
  for (size_t t = 0; t < none.x.size(); ++t) {
    EXPECT_GT(none.norms[t], 0.5) << "the test must clip";
    EXPECT_NEAR(hybrid.norms[t], none.norms[t], 1e-6 * none.norms[t]) << "step " << t + 1;
    for (size_t i = 0; i < none.x[t].size(); ++i) ASSERT_NEAR(hybrid.x[t][i], none.x[t][i], 1e-6) << i;
  }
}

// Optimizers that communicate clip by the mean of the squared norms of all workers. Here, the workers of a node have
// equal gradients, so this is also the mean over the nodes.
TEST(HybridSharding, OptimizersThatCommunicateClipByTheNormsOfTheWorkers) {
  for (const std::string& name : method_names<OptimizerMethod>()) {
    OptimizerConfig optimizer = name;
    if (!optimizer.method().communicates_itself) continue;
    if (optimizer.has("warmup_steps")) optimizer.set("warmup_steps", 3);
    if (optimizer.has("max_interval")) optimizer.set("max_interval", 1);
    ShardPlan plan{.optimizer = optimizer, .topology = {2, 1}, .steps = 6, .clip_norm = 0.5};
    const ShardRun nodes = train_sharded(plan);
    plan.exchange = sharded("dense", "hybrid");
    plan.topology = {2, 2};
    plan.gradient = [](int rank, int64_t step, int64_t element, double x) {
      return noisy_gradient(rank / 2, step, element, x);
    };
    const ShardRun hybrid = train_sharded(plan);
    for (size_t t = 0; t < nodes.x.size(); ++t) {
      EXPECT_GT(nodes.norms[t], 0.5) << "the test must clip";
      EXPECT_NEAR(hybrid.norms[t], nodes.norms[t], 1e-6 * nodes.norms[t]) << name << ", step " << t + 1;
      for (size_t i = 0; i < nodes.x[t].size(); ++i)
        ASSERT_NEAR(hybrid.x[t][i], nodes.x[t][i], 1e-6) << name << ", step " << t + 1 << ", value " << i;
    }
    plan.clip_norm = 0;
    EXPECT_NE(train_sharded(plan).x, hybrid.x) << name << ": the clipping must have an effect";
  }
}

TEST(HybridSharding, BirderClipsAsWithoutSharding) {
  ShardPlan plan{.optimizer = "birder", .topology = {2, 3}, .steps = 6, .clip_norm = 0.5};
  const ShardRun none = train_sharded(plan);
  plan.exchange = sharded("dense", "hybrid");
  const ShardRun hybrid = train_sharded(plan);
  for (size_t t = 0; t < none.x.size(); ++t) {
    EXPECT_NEAR(hybrid.norms[t], none.norms[t], 1e-6 * none.norms[t]) << "step " << t + 1;
    for (size_t i = 0; i < none.x[t].size(); ++i) ASSERT_NEAR(hybrid.x[t][i], none.x[t][i], 1e-6) << i;
  }
}

}  // namespace parameter_shards_test
}  // namespace godwit
