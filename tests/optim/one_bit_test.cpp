// 1-bit Adam, 0/1 Adam and 1-bit LAMB: pitfalls, bytes, rejected options.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/buckets/blocks.h"
#include "optim/data_parallel.h"
#include "optim/one_bit_adam.h"
#include "tests/autograd/dot.h"
#include "tests/optim/one_bit_harness.h"
#include "tests/optim/support.h"
#include "tests/support.h"

namespace godwit {
namespace one_bit_test {

using test::apart;
using test::dot;
using test::EachRank;
using test::Plan;
using test::plan_of;
using test::Vector;
using test::wide;

void expect_same(const EachRank& a, const EachRank& b) {
  EXPECT_EQ(a.x, b.x);
  for (const auto& [key, values] : a.state) {
    if (key.first == "server_e") continue;  // bucket sizes change the owners of segments
    EXPECT_EQ(b.state.at(key), values) << key.first;
  }
}

TEST(OneBitMethods, Pitfall14BucketSizeAndThreadsDoNotChangeABit) {
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"}) {
    Plan plan = plan_of(name, {2, 2}, 6);
    plan.sizes = {40'000, 1, 7, 99'999};
    plan.config.set("block_size", 1000).set("warmup_steps", 2);
    test::set_if_known(plan.config, "doubling_steps", 1);
    plan.bucket_bytes = 1 << 30;
    const EachRank whole = test::train_each(plan);
    for (const int64_t bytes : {4, 160'200})
      for (const int threads : {1, 3}) {
        plan.bucket_bytes = bytes;
        plan.threads = threads;
        expect_same(test::train_each(plan), whole);
      }
  }
}

// Blocks of one value are lossless: Adam with dense means, whose variance is frozen after the warm-up.
TEST(OneBitAdam, Pitfall8BlocksOfOneValueAreDenseAdamWithAFrozenVariance) {
  Plan plan = plan_of("one_bit_adam", {3, 1}, 60);
  plan.config.set("block_size", 1).set("bias_correction", false).set("update_limit", 0);
  const EachRank run = test::train_each(plan);
  const auto d = static_cast<size_t>(plan.d());
  std::vector<float> x(d), m(d), v(d);
  for (size_t j = 0; j < d; ++j) x[j] = static_cast<float>(test::start_value(static_cast<int64_t>(j)));
  const auto beta1 = 0.9f, o1 = static_cast<float>(1 - 0.9), beta2 = 0.999f, o2 = static_cast<float>(1 - 0.999);
  for (int64_t t = 1; t <= plan.steps; ++t) {
    const double rate = test::rate_of(plan, t);
    for (size_t j = 0; j < d; ++j) {
      float z = 0, g = 0;
      for (int rank = 0; rank < 3; ++rank) {
        const auto own =
            static_cast<float>(test::noisy_gradient(rank, t, static_cast<int64_t>(j), static_cast<double>(x[j])));
        g += own;
        z += beta1 * m[j] + o1 * own;
      }
      g /= 3, z /= 3;
      const bool warm = t <= 20;
      m[j] = warm ? beta1 * m[j] + o1 * g : v[j] == 0 ? 0 : z;
      if (warm) v[j] = beta2 * v[j] + o2 * (g * g);
      const bool decays = j < 152 || j >= 152 + 64;
      const auto keep = static_cast<float>(decays ? 1 - rate * 0.1 : 1);
      x[j] = keep * x[j] - static_cast<float>(rate) * (m[j] / (std::sqrt(v[j]) + 1e-8f));
    }
    ASSERT_EQ(run.x[0][static_cast<size_t>(t - 1)], wide(x)) << "step " << t;
  }
  EXPECT_EQ(run.state.at({"e", 2}), Vector(d));
}

// Pitfall 5: a parameter without a gradient does not move, and its update stays bounded if a gradient appears after the
// warm-up.
TEST(OneBitMethods, Pitfall5ParametersWithoutGradientDoNotMove) {
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"})
    for (const bool wakes : {false, true}) {
      Plan plan = plan_of(name, {2, 2});
      plan.config.set("weight_decay", 0);
      plan.gradient = [wakes](int rank, int64_t step, int64_t element, double x) {
        if (element % 11 == 3) return wakes && step > 150 ? 1.0 : 0.0;
        const auto draw =
            random_word(9, element, static_cast<uint32_t>(step), Purpose::test, static_cast<uint32_t>(rank));
        return 1 + 0.1 * x + static_cast<double>(to_unit(draw));  // all of similar magnitude
      };
      const EachRank run = test::train_each(plan);
      for (size_t step = 0; step < run.x[0].size(); ++step)
        for (size_t j = 0; j < run.x[0][step].size(); ++j) {
          const double start = test::start_value(static_cast<int64_t>(j));
          if (j % 11 == 3) {
            ASSERT_EQ(run.x[1][step][j], start) << name << ", step " << step + 1 << ", value " << j;
          } else {
            ASSERT_LT(std::abs(run.x[1][step][j] - start), 0.02 * static_cast<double>(step + 1) + 0.1)
                << name << ", step " << step + 1 << ", value " << j;
          }
        }
    }
}

// Pitfall 12: the update does not jump when compression begins, with and without bias correction.
TEST(OneBitAdam, Pitfall12UpdatesDoNotJumpWhenCompressionBegins) {
  for (const bool corrected : {false, true})
    for (const int64_t block : {1, 64})
      for (const int64_t warmup : {20, 100}) {
        Plan plan = plan_of("one_bit_adam", {2, 1}, warmup + 3);
        plan.config.set("warmup_steps", warmup).set("bias_correction", corrected);
        plan.config.set("block_size", block).set("weight_decay", 0).set("update_limit", 0);
        plan.gradient = [](int rank, int64_t step, int64_t element, double) {
          const auto draw =
              random_word(9, element, static_cast<uint32_t>(step), Purpose::test, static_cast<uint32_t>(rank));
          return static_cast<double>(1 + 0.2f * to_unit(draw));
        };
        const EachRank run = test::train_each(plan);
        const auto moved = [&](int64_t step) {  // divided by the learning rate
          return apart(run.x[0][static_cast<size_t>(step - 1)], run.x[0][static_cast<size_t>(step - 2)]) /
                 test::rate_of(plan, step);
        };
        EXPECT_NEAR(moved(warmup + 1) / moved(warmup), 1, 0.1) << corrected << ", blocks of " << block;
      }
}

// Pitfall 37: the first gradient gives the first update.
TEST(OneBitMethods, Pitfall37TheFirstStepUpdatesTheParameters) {
  for (const auto& [name, expected] :
       {std::pair{"one_bit_adam", 1.0}, {"zero_one_adam", 0.1}}) {  // only v is bias-corrected in 0/1 Adam
    Plan plan = plan_of(name, {2, 1}, 1);
    plan.config.set("weight_decay", 0);
    plan.gradient = [](int, int64_t, int64_t, double) { return 0.5; };
    const Vector x = test::train_each(plan).x[0][0];
    for (size_t j = 0; j < x.size(); ++j)
      EXPECT_NEAR(test::start_value(static_cast<int64_t>(j)) - x[j], expected * test::rate_of(plan, 1), 1e-6) << name;
  }
}

// Pitfall 39: a worker continues with the agreed momentum unless keep_local_momentum is set.
TEST(OneBitMethods, Pitfall39WorkersContinueWithTheAgreedMomentum) {
  const auto momenta_agree = [](const Plan& plan) {
    const EachRank run = test::train_each(plan);
    return run.state.at({"m", 1}) == run.state.at({"m", 0}) && run.state.at({"m", 2}) == run.state.at({"m", 0});
  };
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"})
    EXPECT_TRUE(momenta_agree(plan_of(name, {3, 1}, 30))) << name;
  Plan local = plan_of("one_bit_adam", {3, 1}, 30);
  local.config.set("keep_local_momentum", true);
  EXPECT_FALSE(momenta_agree(local));
  const Plan between = plan_of("zero_one_adam", {3, 1}, 61);  // steps 61 and 62 form one interval
  EXPECT_FALSE(test::train_each(between).synchronized[0].back() || momenta_agree(between));
}

// Bytes that a rank sends per step of each kind, over all buckets.
struct Formula {
  int64_t dense = 0, signs = 0;
};

Formula formula_of(const Plan& plan) {
  std::vector<Parameter> parameters;
  for (const int64_t size : plan.sizes)
    parameters.push_back({"p" + std::to_string(parameters.size()), Var(Tensor::zeros({size}), true)});
  const int world = plan.topology.world();
  const Buckets buckets(parameters, {plan.bucket_bytes, plan.bucket_bytes, 32 * world});
  const auto block_size = static_cast<int64_t>(plan.config.number("block_size"));
  Formula formula;
  for (const Bucket& bucket : buckets) {
    const BlockLayout layout(bucket, block_size, world);
    formula.dense += 2 * (world - 1) * 4 * bucket.padded_numel() / world;
    formula.signs += 2 * (world - 1) * (4 * layout.most_parts() + 4 * ((layout.longest() + 31) / 32));
  }
  return formula;
}

// Pitfall 34: byte counts include the steps of the warm-up and of variance updates.
TEST(OneBitMethods, Pitfall34BytesIncludeTheWarmUp) {
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"})
    for (const Topology topology : {Topology{1, 1}, {3, 1}, {2, 3}}) {
      Plan plan = plan_of(name, topology, 100);
      plan.sizes = {1000, 333};
      plan.decay = {};
      const Formula formula = formula_of(plan);
      int64_t dense = 20, signs = plan.steps - dense;
      if (plan.config.name() == "zero_one_adam") {
        SyncSchedule schedule(plan.config.as<ZeroOneAdam::Options>());
        dense = signs = 0;
        for (int64_t t = 1; t <= plan.steps; ++t) {
          const SyncSchedule::Step step = schedule.at(t);
          dense += step.variance, signs += step.sync;
        }
        EXPECT_LT(signs, plan.steps);
      }
      for (const auto& phases : test::train_each(plan).stats) {
        int64_t sent = 0;
        for (const auto& [phase, count] : phases) sent += count.bytes_intra + count.bytes_inter;
        EXPECT_EQ(sent, dense * formula.dense + signs * formula.signs) << name;
      }
    }
}

// Between synchronizations the ranks' parameters differ. A lossless synchronization returns their mean.
TEST(ZeroOneAdam, Pitfall22ALosslessSynchronizationReturnsTheMeanOfTheLocalParameters) {
  Plan plan = plan_of("zero_one_adam", {4, 1});
  plan.config.set("block_size", 1).set("weight_decay", 0).set("update_limit", 0);
  const EachRank run = test::train_each(plan);
  test::ZeroOneAdamServer<float> server(plan);
  int64_t differing = 0;
  const auto d = static_cast<size_t>(plan.d());
  for (int64_t t = 1; t <= plan.steps; ++t) {
    server.step(t);
    const auto step = static_cast<size_t>(t - 1);
    if (!run.synchronized[0][step]) {
      differing += run.x[0][step] != run.x[1][step];
      continue;
    }
    for (const auto& of_rank : run.x) ASSERT_EQ(of_rank[step], run.x[0][step]);
    for (size_t j = 0; j < d; ++j) {
      double largest = 1;  // largest local parameter; the mean contains its float32 rounding
      for (const auto& local : server.local_x) largest = std::max(largest, std::abs(static_cast<double>(local[j])));
      ASSERT_NEAR(run.x[0][step][j], server.mean_x[j], 5e-7 * largest) << "step " << t;
    }
  }
  EXPECT_GT(differing, 50);
}

// With β2 = 0.5 a change of v after 4 steps has Adam's weight 0.94, and max(2/κ, n/t) limits it to 2/3.
TEST(ZeroOneAdam, OneBatchCannotReplaceTheSecondMoment) {
  Plan plan = plan_of("zero_one_adam", {2, 1}, 30);
  plan.config.set("beta2", 0.5).set("warmup_steps", 30).set("update_limit", 0);
  plan.gradient = [](int, int64_t step, int64_t, double) { return step < 12 ? 1.0 : 0.0; };
  const EachRank run = test::train_each(plan);
  SyncSchedule schedule(plan.config.as<ZeroOneAdam::Options>());
  double v = 0, largest = 0;
  for (int64_t t = 1; t <= plan.steps; ++t) {
    const SyncSchedule::Step now = schedule.at(t);
    if (!now.variance) continue;
    const auto n = static_cast<double>(now.since_variance), time = static_cast<double>(t);
    const double adam = (1 - std::pow(0.5, n)) / (1 - std::pow(0.5, time));
    const double w = std::min(adam, std::max(2.0 / 3, n / time));
    largest = std::max(largest, adam);
    v = (1 - w) * v + w * (t < 12 ? 1 : 0);
  }
  EXPECT_GT(largest, 0.9);
  const Vector& found = run.state.at({"v", 0});
  EXPECT_NEAR(found[0], v, 1e-6 * v);
}

// Pitfall 6: weight decay is not part of the accumulated and sent value. A parameter without gradients decays by
// Π(1−αλ).
TEST(ZeroOneAdam, Pitfall6WeightDecayStaysOutsideTheCompressedValue) {
  Plan plan = plan_of("zero_one_adam", {2, 1});
  plan.config.set("decay_norm_and_bias", true);
  plan.gradient = [](int, int64_t, int64_t element, double) { return element % 2 == 0 ? 0.0 : 0.1; };
  const EachRank run = test::train_each(plan);
  double product = 1;
  for (int64_t t = 1; t <= plan.steps; ++t) {
    product *= 1 - test::rate_of(plan, t) * 0.1;
    for (size_t j = 0; j < run.x[0][0].size(); j += 2)
      ASSERT_NEAR(run.x[0][static_cast<size_t>(t - 1)][j], product * test::start_value(static_cast<int64_t>(j)),
                  1e-7 * static_cast<double>(t));
  }
}

// Pitfall 22: replicas are compared, averaged and saved only after steps at which they are equal.
TEST(ZeroOneAdam, Pitfall22ReplicasAreUsedOnlyWhenTheyAreEqual) {
  run_local({2, 2}, [](Communicator& comm) {
    const Var w(Tensor::full({70}, 1), true);
    DataParallelOptions options;
    options.optimizer =
        ZeroOneAdam::Options{.warmup_steps = 2, .intervals = ZeroOneAdam::Intervals::fixed, .max_interval = 4};
    std::vector<int64_t> updated;
    options.updated = [&](const Bucket&, const StepInfo& step) { updated.push_back(step.step); };
    DataParallel replica({{"w", w}}, comm, options);
    for (int64_t t = 1; t <= 6; ++t) {
      replica.step(dot(w, 1 + 0.1 * comm.rank));
      EXPECT_EQ(replica.synchronized(), t <= 3) << t;
    }
    EXPECT_NE(error_of([&] { replica.check_replicas(); }).find("after step 6 the replicas differ"), std::string::npos);
    replica.synchronize();
    EXPECT_TRUE(replica.synchronized());
    replica.check_replicas();
    const double there = w.value().item();
    replica.synchronize();
    EXPECT_EQ(w.value().item(), there) << "a second synchronize() changes nothing";
    replica.step(dot(w, 1));
    EXPECT_TRUE(replica.synchronized()) << "T_u is a set of steps and contains 7";
    replica.check_replicas();
    EXPECT_EQ(updated, (std::vector<int64_t>{1, 2, 3, 6, 7}));
  });
}

// All ranks clip by one factor before communication. With accumulation, steps are counted, not micro-batches.
TEST(OneBitMethods, Pitfall7ClippingAndAccumulation) {
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"}) {
    const auto trained = [&](double clip, int micro_batches, double factor) {
      double result = 0;
      run_local({3, 1}, [&](Communicator& comm) {
        const Var w(Tensor::full({70}, 1), true);
        DataParallelOptions options;
        options.optimizer = plan_of(name, {3, 1}).config;
        options.optimizer.set("warmup_steps", 4);
        test::set_if_known(options.optimizer, "doubling_steps", 3);
        options.clip_norm = clip;
        DataParallel replica({{"w", w}}, comm, options);
        for (int64_t t = 1; t <= 12; ++t) {
          replica.begin_step(1e-2, micro_batches);
          for (int i = 0; i < micro_batches; ++i) replica.backward(dot(w, factor * (comm.rank + 1)));
          replica.finish_step();
        }
        replica.synchronize();
        replica.check_replicas();
        if (comm.rank == 0) result = w.value().item(7);
      });
      return result;
    };
    EXPECT_EQ(trained(0, 1, 1), trained(0, 2, 1)) << name;
    // The norm is √(70·(1+4+9)/3); a limit of half the norm halves all gradients.
    EXPECT_NEAR(trained(0.5 * std::sqrt(70 * 14.0 / 3), 1, 1), trained(0, 1, 0.5), 1e-5) << name;
  }
}

// The error of creating the optimizer for a small model on one rank; "" if there is none.
std::string refusal_of(const OptimizerConfig& config) {
  return test::error_or_none([&] {
    run_local({1, 1}, [&](Communicator& comm) {
      Buckets buckets({{"x", Var(Tensor::zeros({5}), true)}}, {});
      make_optimizer(config, {buckets, comm});
    });
  });
}

OptimizerConfig fitted(const OptimizerConfig& config, int64_t steps, const ScheduleConfig& schedule = {}) {
  return for_run(config, Schedule(schedule, config.number("lr"), 10, steps), steps);
}

// Uncompressed gradients in 16 bits: half the bytes, and parameters that differ from those of float32 by rounding.
TEST(OneBitMethods, DenseWireHalvesTheBytesOfUncompressedGradients) {
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"}) {
    Plan plan = plan_of(name, {2, 2}, 20);  // the warm-up
    const auto trained = [&](const char* wire) {
      plan.config.set("dense_wire", wire);
      return test::train_each(plan);
    };
    const auto bytes = [](const EachRank& run, const std::string& purpose) {
      int64_t sum = 0;
      for (const auto& [phase, count] : run.stats[0])
        if (phase.find(purpose) != std::string::npos) sum += count.bytes_intra + count.bytes_inter;
      return sum;
    };
    const char* purpose = std::string(name) == "zero_one_adam" ? "/variance_" : "/warmup_";
    const EachRank exact = trained("f32");
    for (const auto& [wire, tolerance] : {std::pair{"bf16", 0.02}, {"f16", 0.01}}) {
      const EachRank run = trained(wire);
      EXPECT_EQ(2 * bytes(run, purpose), bytes(exact, purpose)) << name << " " << wire;
      EXPECT_GT(bytes(run, purpose), 0);
      for (size_t rank = 1; rank < run.x.size(); ++rank) EXPECT_EQ(run.x[rank], run.x[0]);
      EXPECT_NE(run.x[0], exact.x[0]);
      EXPECT_LE(apart(run.x[0].back(), exact.x[0].back()), tolerance) << name << " " << wire;
    }
  }
}

// The end-to-end reduction of the 1-bit Adam paper, 1/(w + (1−w)/16) for a warm-up over the fraction w of the steps, is
// against gradients in 16 bits. Bytes are counted in a run of a thousandth of the steps.
TEST(OneBitMethods, EndToEndVolumeOf1BitAdamAgainst16Bits) {
  for (const auto& [warmup, steps, reduction] : {std::tuple{16, 118, 5.27}, {23, 152, 4.89}}) {
    Plan plan = plan_of("one_bit_adam", {2, 1}, steps);
    plan.sizes = {1 << 15};
    plan.bucket_bytes = 1 << 20;
    plan.config.set("warmup", "fixed").set("warmup_steps", warmup).set("refresh_variance", false);
    plan.config.set("dense_wire", "bf16").set("block_size", 4096);
    const EachRank run = test::train_each(plan);
    int64_t bytes = 0;
    for (const auto& [phase, count] : run.stats[0]) bytes += count.bytes_inter;
    const double of_16_bits = 2.0 * 2 * (1 << 15) / 2 * steps;  // 2(W−1)/W values of 2 bytes
    EXPECT_NEAR(of_16_bits / static_cast<double>(bytes), reduction, 0.005 * reduction);
  }
}

// Elements that are 3 modulo 11 have no gradient until step 30. From step 31 on, the gradients of the third parameter,
// elements 152 to 215, are 100 times as large. The warm-up ends after step 20, so v is refreshed in steps 25, 35
// and 55.
EachRank run_with_late_gradients(const char* name, bool refresh) {
  Plan plan = plan_of(name, {2, 2}, 60);
  plan.config.set("weight_decay", 0).set("refresh_variance", refresh).set("update_limit", 1);
  plan.gradient = [](int rank, int64_t step, int64_t element, double) {
    if (element % 11 == 3 && step <= 30) return 0.0;
    const auto draw = random_word(9, element, static_cast<uint32_t>(step), Purpose::test, static_cast<uint32_t>(rank));
    const double g = 0.5 + static_cast<double>(to_unit(draw));
    return element >= 152 && element < 216 && step > 30 ? 100 * g : g;
  };
  return test::train_each(plan);
}

TEST(OneBitMethods, RefreshesGiveLateGradientsTheirSecondMoment) {
  for (const char* name : {"one_bit_adam", "one_bit_lamb"}) {
    const EachRank without = run_with_late_gradients(name, false), with = run_with_late_gradients(name, true);
    const Vector &v = with.state.at({"v", 0}), &frozen = without.state.at({"v", 0});
    const Vector &x = with.x[0][59], &before = with.x[0][29], &still = without.x[0][59];
    const double correction = 1 - std::pow(0.999, 20);
    for (size_t j = 0; j < v.size(); ++j) {
      EXPECT_EQ(with.state.at({"v", 3})[j], v[j]);
      if (j % 11 == 3) {
        EXPECT_EQ(frozen[j], 0);
        EXPECT_EQ(still[j], before[j]) << "without a refresh the parameter never moves";
        // In step 35, √v̂ is that of 5 of 15 gradients, which are within a factor of 1.5
        const double size = (j >= 152 && j < 216 ? 100 : 1) / std::sqrt(3);
        EXPECT_GT(std::sqrt(v[j] / correction), 0.5 * size) << name << " " << j;
        EXPECT_LT(std::sqrt(v[j] / correction), 1.5 * size * 1.001) << name << " " << j;
        EXPECT_LT(x[j], before[j]) << name << " " << j;
        if (with.state.contains({"v_fresh", 0})) {  // v̂_fresh starts at v̂ of step 35 and then averages
          const double fresh = with.state.at({"v_fresh", 0})[j] / (1 - std::pow(0.999, 60));
          EXPECT_GT(std::sqrt(fresh), 0.5 * size) << j;
          // Observed: 6.7. Signs add noise to ĝ once the value moves, because the worker's error feedback is empty.
          EXPECT_LT(std::sqrt(fresh), 8 * size) << j;
        }
      } else if (j >= 152 && j < 216) {
        EXPECT_GT(v[j], 1000 * frozen[j]);
        EXPECT_LT(v[j], 30'000 * frozen[j]);
      } else {
        EXPECT_NEAR(v[j], frozen[j], 0.1 * frozen[j]) << "a settled second moment hardly changes";
      }
    }
    int64_t refreshed = 0;
    for (const auto& [phase, count] : with.stats[0])
      if (phase.find("/refresh_") != std::string::npos) refreshed += count.calls;
    EXPECT_EQ(refreshed % 3, 0) << "steps 25, 35 and 55";
    EXPECT_GT(refreshed, 0);
  }
}

// A value whose only gradient falls between two refreshes gets a second moment: element 7, step 30, one of 4 ranks.
// Elements without any gradient keep v = 0.
TEST(OneBitMethods, RefreshesKnowTheGradientsSinceTheWarmUp) {
  for (const char* name : {"one_bit_adam", "one_bit_lamb"}) {
    Plan plan = plan_of(name, {2, 2}, 40);
    plan.config.set("weight_decay", 0).set("refresh_variance", true).set("update_limit", 1);
    plan.gradient = [](int rank, int64_t step, int64_t element, double) {
      if (element == 7) return step == 30 && rank == 1 ? 0.8 : 0.0;
      return element == 8 ? 0.0 : 0.1;
    };
    const EachRank run = test::train_each(plan);
    const Vector& v = run.state.at({"v", 0});
    const double seen = 0.2 * 0.2 * 0.001 * std::pow(0.999, 5) / (1 - std::pow(0.999, 15));  // the mean is 0.2
    EXPECT_NEAR(v[7] / (1 - std::pow(0.999, 20)), seen, 1e-5 * seen) << name;
    EXPECT_NE(run.x[0][34][7], run.x[0][33][7]) << name;
    EXPECT_EQ(run.x[0][33][7], test::start_value(7)) << name;
    EXPECT_EQ(v[8], 0) << name;
    EXPECT_EQ(run.x[0][39][8], test::start_value(8)) << name;
    EXPECT_EQ(run.state.at({"v", 3}), v) << name;
  }
}

TEST(OneBitMethods, RefuseOptionsThatContradictTheRunOrEachOther) {
  const auto refuses = [](const char* name, const char* what, int64_t steps, auto change,
                          const ScheduleConfig& schedule = {}) {
    OptimizerConfig config = name;
    std::string text = test::error_or_none([&] {
      change(config);
      config = fitted(config, steps, schedule);
    });
    if (text.empty()) text = refusal_of(config);
    EXPECT_NE(text.find(what), std::string::npos) << name << " " << what << ": '" << text << "'";
  };
  for (const char* name : {"one_bit_adam", "zero_one_adam", "one_bit_lamb"}) {
    for (const int64_t steps : {2, 60, 10'000}) EXPECT_EQ(refusal_of(fitted(name, steps)), "") << name << steps;
    const bool skips = std::string(name) == "zero_one_adam";
    refuses(name,
            skips ? "warm-up of 100 steps leaves nothing to skip of a run of 60"
                  : "warm-up of 100 steps leaves nothing to compress of a run of 60",
            60, [](auto& c) { c.set("warmup_steps", 100); });
    refuses(name, "warmup_fraction expects a finite number in [0, 1], got 1.5", 60,
            [](auto& c) { c.set("warmup_fraction", 1.5); });
    refuses(name, "warmup_steps expects an integer of at least 0, got -1", 60,
            [](auto& c) { c.set("warmup_steps", -1); });
    refuses(name, "block_size expects an integer of at least -1, got -2", 60, [](auto& c) { c.set("block_size", -2); });
    refuses(name, "did you mean 'l1_mean'", 60, [](auto& c) { c.set("sign_scale", "l1_men"); });
    refuses(name, "eps", 60, [](auto& c) { c.set("eps", 0); });
    EXPECT_NE(refusal_of(name).find("set warmup_steps"), std::string::npos);
  }
  refuses("one_bit_adam", "a warm-up of 1 steps leaves nothing", 1, [](auto&) {});
  refuses("one_bit_lamb", "needs a warm-up", 60, [](auto& c) { c.set("warmup_fraction", 0); });
  refuses("one_bit_lamb", "min_coeff 20 is above max_coeff 10", 60, [](auto& c) { c.set("min_coeff", 20); });
  refuses("one_bit_lamb", "factor_min expects a finite number in (0, 1], got 2", 60,
          [](auto& c) { c.set("factor_min", 2); });
  refuses("one_bit_lamb", "factor_threshold", 60, [](auto& c) { c.set("factor_threshold", 1); });
  refuses("one_bit_lamb", "coeff_beta", 60, [](auto& c) { c.set("coeff_beta", 1); });
  refuses("zero_one_adam", "learning rate of step 60 of 60 is", 60, [](auto&) {},
          {.name = "polynomial", .power = 50});  // below the smallest float32
  refuses("zero_one_adam", "final_fraction", 60, [](auto& c) { c.set("lr", 0); });
  refuses("zero_one_adam", "needs doubling_steps", 60,
          [](auto& c) { c.set("warmup_fraction", 0).set("intervals", "doubling"); });
  refuses("zero_one_adam", "doubling_steps is 3, but it is read with intervals=doubling only", 60,
          [](auto& c) { c.set("doubling_steps", 3); });
  refuses("zero_one_adam", "kappa expects an integer of at least 1, got 0", 60, [](auto& c) { c.set("kappa", 0); });
  refuses("zero_one_adam", "max_interval expects an integer of at least 1, got 0", 60,
          [](auto& c) { c.set("max_interval", 0); });
  refuses("zero_one_adam", "did you mean 'fixed'", 60, [](auto& c) { c.set("intervals", "fixd"); });
  refuses("zero_one_adam", "freeze_step 60 is not below the run's 60", 60, [](auto& c) { c.set("freeze_step", 60); });
  refuses("zero_one_adam", "the variance would change at step 14, within the local steps 13 to 14", 60, [](auto& c) {
    c.set("warmup_steps", 10)
        .set("intervals", "doubling")
        .set("doubling_steps", 2)
        .set("variance_interval", 1)
        .set("freeze_step", 40);
  });
  refuses("zero_one_adam", "the first interval already has 4 steps", 60,
          [](auto& c) { c.set("warmup_fraction", 0).set("intervals", "fixed").set("max_interval", 4); });
}

TEST(ZeroOneAdam, RefusesARateOfZeroAndStepsThatDoNotAscend) {
  run_local({1, 1}, [](Communicator& comm) {
    Buckets buckets({{"x", Var(Tensor::zeros({40}), true)}}, {});
    const auto optimizer = make_optimizer(ZeroOneAdam::Options{.warmup_steps = 5, .max_interval = 1}, {buckets, comm});
    EXPECT_NE(error_of([&] {
                optimizer->exchange(buckets[0], comm, {1, 0});
              }).find("must be positive"),
              std::string::npos);
    optimizer->exchange(buckets[0], comm, {3, 0.1});
    EXPECT_NE(error_of([&] {
                optimizer->exchange(buckets[0], comm, {2, 0.1});
              }).find("must ascend"),
              std::string::npos);
  });
}

}  // namespace one_bit_test
}  // namespace godwit
