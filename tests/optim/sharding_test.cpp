#include "comm/buckets/sharding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/consistency.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/sgd.h"
#include "tests/optim/methods.h"
#include "tests/optim/sharding_harness.h"
#include "tests/support.h"

namespace godwit {
namespace sharding_test {

using namespace godwit::test;

const std::vector<Topology> kRanks{{1, 1}, {2, 1}, {1, 3}, {2, 2}, {5, 1}, {3, 2}, {7, 1}, {4, 2}};

std::vector<std::string> gradient_optimizers() {
  std::vector<std::string> names;
  for (const std::string& name : method_names<OptimizerMethod>())
    if (!OptimizerConfig(name).method().communicates_itself) names.push_back(name);
  return names;
}

TEST(Sharding, ChangesNoBitOfAnyGradientOptimizer) {
  for (const std::string& name : gradient_optimizers())
    for (const DType dtype : {DType::f32, DType::f64}) {
      ShardPlan plan{.optimizer = name, .dtype = dtype};
      const ShardRun none = train_sharded(plan);
      for (const char* sharding : {"zero1", "zero2", "zero3"}) {
        plan.exchange = sharded("dense", sharding);
        EXPECT_EQ(train_sharded(plan).x, none.x) << name << ", " << sharding << ", " << dtype;
      }
    }
}

TEST(Sharding, ChangesNoBitOnAnyNumberOfRanks) {
  for (const Topology& topology : kRanks)
    for (const char* wire : {"f32", "bf16"}) {
      ShardPlan plan{.topology = topology, .steps = 5};
      plan.exchange.set("wire", wire);
      const ShardRun none = train_sharded(plan);
      for (const char* sharding : {"zero1", "zero2", "zero3"}) {
        plan.exchange.set("sharding", sharding);
        const ShardRun run = train_sharded(plan);
        EXPECT_EQ(run.x, none.x) << topology.world() << " ranks, wire " << wire << ", " << sharding;
        int64_t all = 0;
        for (size_t r = 0; r < run.owned.size(); ++r) {
          EXPECT_EQ(run.state_values[r], 2 * run.owned[r]) << "m and v of its own shard";
          all += run.owned[r];
        }
        EXPECT_EQ(all, static_cast<int64_t>(run.x[0].size())) << "every parameter has one owner";
      }
    }
}

// Gradients arrive in order, last variable first; all are 1.
Var chain(const std::vector<Var>& vars) {
  Var y(Tensor::full({1}, 0), true);
  for (const Var& var : vars)
    y = Var::result(Tensor::full({1}, 0), {y, var}, [before = y.gradient(), of_var = var.gradient()](const Tensor& dy) {
      const Tensor g = of_var.target();
      g.fill(1);
      of_var.add(g);
      before.add(dy);
    });
  return y;
}

// A rank holds the gradients of only a few buckets at a time, plus its own shards while a norm is pending. Between
// steps it holds none.
TEST(Sharding, Zero2ReleasesGradients) {
  constexpr int64_t kValues = 10000, kBuckets = 24, kBytes = 4 * kValues;
  for (const double clip : {0.0, 1.0}) {
    std::vector<std::vector<double>> x(2);
    for (const bool zero2 : {false, true})
      run_local({2, 2}, [&](Communicator& comm) {
        std::vector<Parameter> parameters;
        std::vector<Var> vars;
        for (int64_t i = 0; i < kBuckets; ++i) {
          vars.emplace_back(Tensor::full({kValues}, 1), true);
          parameters.push_back({"p" + std::to_string(i), vars.back(), true});
        }
        DataParallelOptions options{.optimizer = "adamw"};
        options.exchange = sharded("dense", zero2 ? "zero2" : "zero1");
        options.buckets = {kBytes, kBytes};
        options.clip_norm = clip;
        DataParallel replica(parameters, comm, options);
        for (int step = 0; step < 3; ++step) {
          context().pool->reset_peak();
          const int64_t before = context().pool->stats().bytes_in_use;
          replica.step(chain(vars));
          const PoolStats stats = context().pool->stats();
          if (!zero2) continue;
          EXPECT_EQ(stats.bytes_in_use, before);
          // Of 24 buckets: two in flight, one waiting, one being filled, a copy of one, a message, and parameters.
          EXPECT_LT(stats.peak_bytes_in_use - before, (clip > 0 ? 8 + kBuckets / 4 : 8) * kBytes);
          for (const Bucket& bucket : replica.buckets()) EXPECT_FALSE(bucket.grad.defined());
          for (const Var& var : vars) EXPECT_FALSE(var.grad().defined());
        }
        if (comm.rank == 0) x[zero2] = values_of(replica.buckets());
      });
    EXPECT_EQ(x[0], x[1]);
  }
}

TEST(Sharding, Zero2ReleasesGradientsOfSkippedSteps) {
  run_local({2, 1}, [](Communicator& comm) {
    const Var w(Tensor::full({100}, 1), true);
    DataParallelOptions options{.optimizer = "adamw", .exchange = sharded("dense", "zero2")};
    options.skip_not_finite = true;
    DataParallel replica({{"w", w}}, comm, options);
    EXPECT_FALSE(replica.step(loss_with({w}, [](int64_t, double) { return static_cast<double>(NAN); })));
    EXPECT_FALSE(replica.buckets()[0].grad.defined());
  });
}

// Some shards are empty.
TEST(Sharding, Pitfall25FewerValuesThanRanks) {
  for (const char* parameter_wire : {"f32", "bf16", "int8"}) {
    ShardPlan plan{.topology = {8, 1}, .shapes = {{2}, {1}}, .steps = 10};
    const ShardRun none = train_sharded(plan);
    for (const char* sharding : {"zero1", "zero2", "zero3"}) {
      plan.exchange = sharded("dense", sharding, parameter_wire);
      const ShardRun run = train_sharded(plan);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(run.x.back()[i], none.x.back()[i], parameter_wire == std::string("f32") ? 0 : 0.02);
    }
  }
}

TEST(Sharding, Zero1DoesNotChangeABitOfOtherExchanges) {
  for (const std::string& name : method_names<ExchangeMethod>()) {
    ShardPlan plan{.exchange = name, .steps = 5};
    if (plan.exchange.sharding != Sharding::none) continue;
    const ShardRun none = train_sharded(plan);
    plan.exchange.set("sharding", "zero1");
    EXPECT_EQ(train_sharded(plan).x, none.x) << name;
  }
}

TEST(Sharding, DoesNotDependOnBucketSizeOrThreads) {
  for (const char* parameter_wire : {"f32", "bf16", "int8"}) {
    ShardPlan plan{.exchange = sharded("dense", "zero2", parameter_wire), .steps = 10};
    plan.shapes.push_back({2500});  // several blocks of 8-bit parameters
    const ShardRun reference = train_sharded(plan);
    plan.bucket_bytes = 1 << 20;
    plan.threads = 3;
    EXPECT_EQ(train_sharded(plan).x, reference.x) << parameter_wire;
  }
}

// Shards consist of whole blocks of 8-bit parameters and of whole blocks of signs.
TEST(Sharding, BlocksOfSignsAndOf8BitParametersDoNotDependOnBucketSizes) {
  test::MethodPlan plan{.optimizer = "one_bit_adam", .sharding = "hybrid", .parameter_wire = "int8"};
  plan.sizes = {2500, 700, 64}, plan.gradients = {1, 2, 3, 4};
  plan.change = [](DataParallelOptions& o) {
    o.optimizer.set("refresh_variance", false).set("warmup", "fixed").set("block_size", 16);
  };
  const test::MethodOutcome small = train_by(plan);
  plan.bucket_bytes = 1 << 20;
  EXPECT_EQ(train_by(plan).x, small.x);
}

// Every rank computes with rounded values; the owner updates float32 masters. Pitfall 18: the 16-bit type is bfloat16.
TEST(Sharding, Pitfall18Bfloat16ParametersFollowAFloat32Master) {
  for (const char* sharding : {"zero1", "zero2", "zero3"})
    for (const Topology& topology : kRanks) {
      ShardPlan plan{.optimizer = Sgd::Options{.lr = 0.003, .weight_decay = 0.01},
                     .exchange = sharded("dense", sharding, "bf16"),
                     .topology = topology,
                     .shapes = {{70}, {33}},
                     .steps = 200};
      const ShardRun run = train_sharded(plan);
      const int world = topology.world();
      std::vector<float> master(103);
      for (int64_t i = 0; i < 103; ++i)
        master[static_cast<size_t>(i)] = static_cast<float>(start_value(i < 33 ? 70 + i : i - 33));
      for (int64_t step = 1; step <= plan.steps; ++step)
        for (int64_t e = 0; e < 103; ++e) {
          float& x = master[static_cast<size_t>(e)];
          float sum = 0;
          for (int rank = 0; rank < world; ++rank) {
            const float g = static_cast<float>(noisy_gradient(rank, step, e, float{bf16(x)}));
            sum = rank == 0 ? g : sum + g;
          }
          const float g = sum / static_cast<float>(world) + 0.01f * x;
          x = x - 0.003f * g;
          ASSERT_EQ(run.x[static_cast<size_t>(step - 1)][static_cast<size_t>(e)], float{bf16(x)}) << "step " << step;
        }
      for (size_t e = 0; e < master.size(); ++e) EXPECT_EQ(run.masters[e], master[e]);
    }
}

// code = round(x·127/M) per block, where M is the block's largest magnitude; the value is code·(M/127).
TEST(Sharding, Int8ParametersAreRoundedInBlocks) {
  ShardPlan plan{.exchange = "zeropp", .topology = {3, 1}, .steps = 20};  // zero2, int8 parameters
  plan.exchange.set("block_size", 16);
  const ShardRun run = train_sharded(plan);
  int64_t begin = 0;
  for (size_t p = plan.shapes.size(); p-- > 0; begin += plan.shapes[p].numel())
    for (int64_t at = 0; at < plan.shapes[p].numel(); at += 16) {
      const int64_t first = begin + at, end = begin + std::min<int64_t>(at + 16, plan.shapes[p].numel());
      float most = 0;
      for (int64_t e = first; e < end; ++e)
        most = std::max(most, std::abs(static_cast<float>(run.masters[static_cast<size_t>(e)])));
      for (int64_t e = first; e < end; ++e) {
        const float x = static_cast<float>(run.masters[static_cast<size_t>(e)]);
        const float code = std::nearbyint(x * (127 / most));
        EXPECT_EQ(run.x.back()[static_cast<size_t>(e)], code * (most / 127)) << "element " << e;
      }
    }
}

// The gradients of the second step are finite, but the parameters are not.
TEST(Sharding, NamesNonFiniteParametersOfTheInt8Wire) {
  ShardPlan plan{.optimizer = "sgdm", .exchange = sharded("dense", "zero1", "int8"), .steps = 2};
  plan.optimizer.set("lr", 1e38);
  EXPECT_NE(error_of([&] { train_sharded(plan); }).find("sharding: a parameter is not finite"), std::string::npos);
}

// One factor for all ranks, computed from the norms of the shards. With zero1 the bits equal those without sharding.
TEST(Sharding, ClipsByOneGlobalNorm) {
  for (const Topology& topology : kRanks) {
    ShardPlan plan{.topology = topology, .steps = 10, .clip_norm = 0.5};
    const ShardRun none = train_sharded(plan);
    plan.exchange.set("sharding", "zero1");
    const ShardRun zero1 = train_sharded(plan);
    EXPECT_EQ(zero1.x, none.x);
    EXPECT_EQ(zero1.norms, none.norms);
    plan.exchange.set("sharding", "zero2");
    const ShardRun zero2 = train_sharded(plan);  // also checks that the replicas are equal
    for (size_t t = 0; t < none.norms.size(); ++t) {
      EXPECT_GT(none.norms[t], 0.5) << "the test must clip";
      EXPECT_NEAR(zero2.norms[t], none.norms[t], 1e-6 * none.norms[t]) << "up to float32 rounding of the factor";
    }
  }
}

TEST(Sharding, ClippingNamesTheNonFiniteParameter) {
  for (const char* sharding : {"zero1", "zero2", "zero3"}) {
    ShardPlan plan{.exchange = sharded("dense", sharding), .clip_norm = 1};
    plan.gradient = [](int rank, int64_t step, int64_t e, double) {
      return step == 3 && rank == 2 && e == 500 ? NAN : 1;
    };
    const std::string error = error_of([&] { train_sharded(plan); });
    EXPECT_NE(error.find("clip: step 3: the norm of the gradients is"), std::string::npos) << error;
    EXPECT_NE(error.find("'p3' is not finite;"), std::string::npos) << error;
  }
}

// zero1: all-reduce and all-gather, 3·4d(W−1)/W; zero2: reduce-scatter and all-gather, 2·4d(W−1)/W. 16-bit parameters
// take half.
TEST(Sharding, BytesPerRankEqualTheFormulas) {
  for (const Topology& topology : kRanks) {
    const int64_t w = topology.world(), d = 64 * 840;  // 840: a multiple of all world sizes
    ShardPlan plan{.topology = topology, .shapes = {{d}}, .steps = 1, .bucket_bytes = 1 << 30};
    const auto bytes = [&](const char* sharding, const char* wire, const char* parameter_wire) {
      plan.exchange = sharded("dense", sharding, parameter_wire);
      plan.exchange.set("wire", wire);
      std::vector<int64_t> all;
      for (const auto& phases : train_sharded(plan).stats) {
        all.push_back(0);
        for (const auto& [name, count] : phases) all.back() += count.bytes_intra + count.bytes_inter;
        EXPECT_EQ(all.back(), all.front()) << "all ranks send the same number of bytes";
      }
      return all.front();
    };
    const int64_t share = d * (w - 1) / w;
    EXPECT_EQ(bytes("zero1", "f32", "f32"), 12 * share);
    EXPECT_EQ(bytes("zero2", "f32", "f32"), 8 * share);
    EXPECT_EQ(bytes("zero2", "f32", "bf16"), 6 * share);
    EXPECT_EQ(bytes("zero2", "bf16", "bf16"), 4 * share) << "the row of Adam in table 1 of the LoCo paper";
    if (d / w % 1024 == 0) {
      EXPECT_EQ(bytes("zero2", "bf16", "int8"), 3 * share + 4 * share / 1024) << "plus one scale per 1024 values";
    }
  }
}

// LoCo works with any sharding, and its means have the same bits whether all ranks or only the owners receive them.
TEST(Sharding, DoesNotChangeABitOfCompressedMeans) {
  for (const char* exchange : {"loco", "zeropp"})
    for (const char* optimizer : {"sgdm", "adamw", "bert_adam"}) {
      ShardPlan plan{.optimizer = optimizer, .exchange = sharded(exchange, "none"), .topology = {3, 1}};
      plan.exchange.set("block_size", 32);
      const ShardRun none = train_sharded(plan);
      for (const char* sharding : {"zero1", "zero2", "zero3"}) {
        plan.exchange.set("sharding", sharding);
        EXPECT_EQ(train_sharded(plan).x, none.x) << exchange << ", " << optimizer << ", " << sharding;
      }
    }
}

// Table 1 of the LoCo paper, to the byte. Block scales are extra: bfloat16 scales that all ranks exchange (auto), and
// float32 scales with zeropp's codes and 8-bit parameters.
TEST(Sharding, BytesMatchTheTableOfTheLocoPaper) {
  for (const Topology& topology : kRanks) {
    const int64_t w = topology.world(), d = 64 * 840, share = d * (w - 1) / w, blocks = d / 64;
    ShardPlan plan{.topology = topology, .shapes = {{d}}, .steps = 1, .bucket_bytes = 1 << 30};
    plan.gradient = [](int, int64_t, int64_t e, double) { return e % 2 ? 1e-5 : -1e-5; };
    const auto bytes = [&](const ExchangeConfig& config) {
      plan.exchange = config;
      plan.exchange.set("block_size", 64);
      const ShardRun run = train_sharded(plan);
      int64_t sum = 0;
      for (const auto& [name, count] : run.stats[0]) sum += count.bytes_intra + count.bytes_inter;
      return sum;
    };
    ExchangeConfig loco = sharded("loco", "zero2", "bf16");
    EXPECT_EQ(bytes(loco), 5 * share / 2 + 2 * blocks * (w - 1)) << "scale auto";
    loco.set("scale", "2^19");
    EXPECT_EQ(bytes(loco), 5 * share / 2) << "2.5 d (W−1)/W";
    loco.set("bits", 8);
    EXPECT_EQ(bytes(loco), 3 * share);
    loco.set("bits", 1);
    EXPECT_EQ(bytes(loco), 17 * share / 8);
    ExchangeConfig both = "loco_zeropp";
    both.set("scale", "2^19");
    EXPECT_EQ(bytes(both), 3 * share / 2 + 4 * share / 64) << "1.5 d (W−1)/W plus scales";
    EXPECT_EQ(bytes("zeropp"), 3 * share / 2 + 2 * (4 * share / 64));
    ExchangeConfig none = sharded("loco", "none");
    none.set("scale", "2^19");
    EXPECT_EQ(bytes(none), share / 2 + share) << "a sum over at most 15 ranks fits in a byte";
  }
}

TEST(Sharding, ZeroppTrainsLikeDense) {
  for (const char* exchange : {"zeropp", "loco_zeropp"}) {
    ShardPlan plan{.optimizer = "sgdm", .exchange = exchange, .topology = {4, 1}, .steps = 200};
    plan.optimizer.set("lr", 0.02);
    plan.exchange.set("block_size", 16);
    plan.gradient = [](int rank, int64_t, int64_t e, double x) {
      return e % 7 == 0 ? 0 : 0.5 * (x - 0.3 * static_cast<double>(e % 5) - 0.1 * (rank - 1.5));
    };
    const ShardRun run = train_sharded(plan);
    for (size_t e = 0; e < run.masters.size(); ++e)
      if (e % 7 != 0) {
        EXPECT_NEAR(run.masters[e], 0.3 * static_cast<double>(e % 5), 0.03) << exchange << ", element " << e;
      }
  }
}

// Averages use the master weights: bfloat16 parameters stay constant while their masters change.
TEST(Sharding, WeightAveragesUseTheMasters) {
  run_local({3, 1}, [](Communicator& comm) {
    const Var w(Tensor::full({50}, 1), true);
    DataParallelOptions options{.optimizer = Sgd::Options{.lr = 1e-4, .weight_decay = 0},
                                .exchange = sharded("dense", "zero2", "bf16")};
    std::unique_ptr<Ema> ema;
    options.updated = [&](const Bucket& bucket, const StepInfo& step) { ema->update(bucket, step.step); };
    DataParallel replica({{"w", w}}, comm, options);
    ema = std::make_unique<Ema>(replica.buckets(), std::vector<Tensor>{}, 0.5);
    float x = 1, average = 1;
    for (int t = 1; t <= 5; ++t) {
      replica.step(loss_with({w}, [](int64_t, double) { return 1; }));
      x = x - 1e-4f;
      average += static_cast<float>(1 - std::min(0.5, (1.0 + t) / (10.0 + t))) * (x - average);
    }
    EXPECT_EQ(w.value().item(), 1) << "0.9995 is not a bfloat16 value";
    ema->complete([&](const Bucket& bucket, const Tensor& averages) { replica.gather(bucket, averages); });
    ema->swap();
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(w.value().item(i), average) << "element " << i;
    ema->swap();
    replica.with_master_weights([&] {
      for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(w.value().item(i), x);
      w.value().fill(3.0009765625);
    });
    EXPECT_EQ(w.value().item(20), 3) << "parameters are the rounded new masters";
    replica.with_master_weights([&] { EXPECT_EQ(w.value().item(20), 3.0009765625); });
    EXPECT_EQ(error_of([&] { replica.with_master_weights([] { fail("not completed"); }); }), "not completed");
    EXPECT_EQ(w.value().item(20), 3) << "rounded again after an error";
  });
}

TEST(Sharding, WholeParametersHaveOneOwner) {
  run_local({2, 2}, [](Communicator& comm) {
    std::vector<Parameter> parameters;
    for (const int64_t n : {100, 7, 60, 200})
      parameters.push_back({"p" + std::to_string(n), Var(Tensor::zeros({n}), true)});
    Buckets buckets(parameters, {.alignment = 128});
    shard(buckets, comm, 0);
    for (const Slot& slot : buckets[0].slots) {
      int owners = 0;
      for (const Segment& s : buckets[0].shards) {
        owners += s.begin <= slot.offset && s.end >= slot.offset + slot.numel;
        EXPECT_TRUE(s.end <= slot.offset || s.begin >= slot.offset + slot.numel ||
                    (s.begin <= slot.offset && s.end >= slot.offset + slot.numel))
            << slot.name << " is split";
      }
      EXPECT_EQ(owners, 1) << slot.name;
    }
  });
}

TEST(Sharding, LambRefusesPartsOfParameters) {
  run_local({2, 1}, [](Communicator& comm) {
    Buckets buckets({{"w", Var(Tensor::zeros({100}), true)}}, {.alignment = 64});
    shard(buckets, comm, std::nullopt);
    EXPECT_NE(error_of([&] { const Lamb lamb({}, buckets, nullptr); }).find("shard whole parameters"),
              std::string::npos);
  });
}

TEST(Sharding, SharedStateHashExcludesShards) {
  for (const char* sharding : {"zero1", "zero2", "zero3"}) {
    ShardPlan plan{.exchange = sharded("dense", sharding), .topology = {3, 1}, .shapes = {{20}}, .steps = 2};
    EXPECT_EQ(train_sharded(plan).owned, (std::vector<int64_t>{20, 0, 0})) << "one rank owns everything";
  }
}

TEST(Sharding, RefusesContradictorySettings) {
  const auto error = [](const std::string& optimizer, const char* exchange, const char* sharding,
                        const char* wire = "f32") {
    return error_of([&] { train_sharded({.optimizer = optimizer, .exchange = sharded(exchange, sharding, wire)}); });
  };
  EXPECT_NE(error("birder", "dense", "zero1").find("birder keeps state of all parameters on every rank"),
            std::string::npos);
  EXPECT_NE(error("adamw", "hierarchical", "zero2").find("use sharding zero1"), std::string::npos);
  EXPECT_NE(error("adamw", "dense", "none", "bf16").find("use zero1, zero2, zero3 or hybrid"), std::string::npos);
  EXPECT_NE(error("adamw", "dense", "zero4").find("no such sharding 'zero4'"), std::string::npos);
  EXPECT_NE(error("adamw", "topk", "zero3").find("sharding zero3 needs an exchange that can leave"), std::string::npos);
  EXPECT_NE(error("birder", "dense", "zero3").find("use hybrid"), std::string::npos);
  ExchangeConfig kept = "dense", whole = sharded("ef_signsgd", "hybrid");
  kept.reshard_after_forward = false;
  EXPECT_NE(error_of([&] { train_sharded({.exchange = kept}); }).find("use zero3 or hybrid"), std::string::npos);
  whole.set("block_size", -1);
  EXPECT_NE(error_of([&] { train_sharded({.exchange = whole}); }).find("one block for the whole model"),
            std::string::npos);
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"}) {
    OptimizerConfig optimizer = for_run(name, Schedule({}, 1e-3, 6, 6), 6);
    optimizer.set("block_size", -1);
    EXPECT_NE(error_of([&] { check_sharding({.optimizer = optimizer, .exchange = sharded("dense", "hybrid")}); })
                  .find(std::string(name) + ": block_size -1 is one block for the whole model"),
              std::string::npos)
        << name;
  }
  OptimizerConfig all_gather = "birder";
  all_gather.set("collective", "all_gather");
  EXPECT_NE(error_of([&] { check_sharding({.optimizer = all_gather, .exchange = sharded("dense", "hybrid")}); })
                .find("set optimizer.collective=h1ar"),
            std::string::npos);
  ShardPlan signs{.exchange = sharded("signsgd", "none"), .clip_norm = 1};
  EXPECT_NE(error_of([&] { train_sharded(signs); }).find("signsgd: the mean consists of signs"), std::string::npos);
  EXPECT_NE(error("adamw", "dense", "zero2", "f16").find("no such parameter_wire 'f16'"), std::string::npos);
  ExchangeConfig int8 = sharded("dense", "zero2");
  int8.set("wire", "int8");
  EXPECT_NE(error_of([&] { train_sharded({.exchange = int8}); }).find("dense in int8"), std::string::npos);
  EXPECT_NE(error_of([] {
              train_sharded({.exchange = sharded("dense", "zero2", "bf16"), .dtype = DType::f64});
            }).find("takes float32 parameters"),
            std::string::npos);
}

}  // namespace sharding_test
}  // namespace godwit
