// 1-bit Adam, 0/1 Adam, LAMB and 1-bit LAMB compared bit for bit with short parameter servers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/transport/local.h"
#include "optim/lamb.h"
#include "optim/one_bit_adam.h"
#include "tests/optim/one_bit_harness.h"

namespace godwit {
namespace parameter_servers_test {

using test::apart;
using test::EachRank;
using test::Plan;
using test::plan_of;
using test::Vector;
using test::wide;

const Topology kOneToEight[] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {5, 1}, {2, 3}, {7, 1}, {4, 2}};

// Rounding per step is 2⁻²⁴ of the largest momentum (about 1) or parameter (about 1). Error feedback keeps these
// roundings forever.
constexpr double kRounding = 1e-6;

void expect_errors(const EachRank& run, const reference::SignServer<float>& server) {
  Vector owned(server.server_e.size(), test::kNobody);
  for (const auto& [key, values] : run.state)
    for (size_t j = 0; key.first == "server_e" && j < owned.size(); ++j) {
      if (values[j] == test::kNobody) continue;
      EXPECT_EQ(owned[j], test::kNobody) << "two owners of value " << j;
      owned[j] = values[j];
    }
  for (size_t rank = 0; rank < server.e.size(); ++rank)
    EXPECT_EQ(run.state.at({"e", static_cast<int>(rank)}), wide(server.e[rank]));
  if (server.e.size() > 1) {
    EXPECT_EQ(owned, wide(server.server_e));
  }
}

void compare_one_bit_adam(const Plan& plan) {
  SCOPED_TRACE(testing::Message() << plan.topology.nodes << " x " << plan.topology.workers_per_node << ", blocks of "
                                  << plan.config.text("block_size"));
  const EachRank run = test::train_each(plan);
  test::OneBitAdamServer<float> server(plan);
  test::OneBitAdamServer<double> exact(plan);
  exact.of = &server.signs;
  for (int64_t t = 1; t <= plan.steps; ++t) {
    server.step(t);
    exact.slack = kRounding * static_cast<double>(t);
    exact.step(t);
    for (const auto& of_rank : run.x) ASSERT_EQ(of_rank[static_cast<size_t>(t - 1)], wide(server.x)) << "step " << t;
    ASSERT_LE(apart(server.m, exact.m), exact.slack) << "step " << t;
  }
  for (int rank = 0; rank < plan.topology.world(); ++rank) {
    const auto& o = plan.config.as<OneBitAdam::Options>();
    const bool local = o.keep_local_momentum && plan.steps > o.warmup_steps;
    EXPECT_EQ(run.state.at({"m", rank}), wide(local ? server.local[static_cast<size_t>(rank)] : server.m));
    EXPECT_EQ(run.state.at({"v", rank}), wide(server.v));
  }
  EXPECT_LE(apart(server.v, exact.v), 1e-6);
  expect_errors(run, server.signs);
}

TEST(OneBitAdam, EqualsAParameterServerFor200StepsOnOneToEightRanks) {
  for (const Topology& topology : kOneToEight) compare_one_bit_adam(plan_of("one_bit_adam", topology));
}

TEST(OneBitAdam, MatchesTheParameterServerForEveryOption) {
  for (const Topology topology : {Topology{1, 1}, {2, 2}}) {
    for (const int64_t block : {0, 1, 4096}) {
      Plan plan = plan_of("one_bit_adam", topology, 60);
      plan.config.set("block_size", block);
      compare_one_bit_adam(plan);
    }
    Plan plan = plan_of("one_bit_adam", topology, 60);
    plan.config.set("bias_correction", false).set("update_limit", 0);  // as published
    compare_one_bit_adam(plan);
    plan.config.set("keep_local_momentum", true).set("sign_scale", "l2_rms");
    compare_one_bit_adam(plan);
  }
}

void compare_zero_one_adam(const Plan& plan, const std::function<bool(int64_t)>& also = nullptr) {
  SCOPED_TRACE(testing::Message() << plan.topology.nodes << " x " << plan.topology.workers_per_node);
  const EachRank run = test::train_each(plan, also);
  test::ZeroOneAdamServer<float> server(plan);
  test::ZeroOneAdamServer<double> exact(plan);
  exact.of = &server.signs;
  SyncSchedule schedule(plan.config.as<ZeroOneAdam::Options>());
  double largest = 1;  // largest parameter; gradients are a tenth of it, and local steps are large where v is tiny
  for (int64_t t = 1; t <= plan.steps; ++t) {
    const bool sync_too = also && also(t), sync = schedule.at(t).sync || sync_too;
    server.step(t, sync_too);
    for (const auto& x : server.x) largest = std::max(largest, apart(x, std::vector<float>(x.size())));
    exact.slack = kRounding * static_cast<double>(t) * largest;
    exact.step(t, sync_too);
    for (size_t rank = 0; rank < run.x.size(); ++rank) {
      ASSERT_EQ(run.x[rank][static_cast<size_t>(t - 1)], wide(server.x[rank])) << "step " << t << ", rank " << rank;
      ASSERT_EQ(run.synchronized[rank][static_cast<size_t>(t - 1)], sync) << "step " << t;
      ASSERT_LE(apart(server.u[rank], exact.u[rank]), exact.slack) << "step " << t;
    }
  }
  for (size_t rank = 0; rank < run.x.size(); ++rank) {
    EXPECT_EQ(run.state.at({"m", static_cast<int>(rank)}), wide(server.m[rank]));
    EXPECT_EQ(run.state.at({"u", static_cast<int>(rank)}), wide(server.u[rank]));
    EXPECT_EQ(run.state.at({"v", static_cast<int>(rank)}), wide(server.v));
  }
  expect_errors(run, server.signs);
}

TEST(ZeroOneAdam, EqualsAParameterServerFor200StepsOnOneToEightRanks) {
  for (const Topology& topology : kOneToEight) compare_zero_one_adam(plan_of("zero_one_adam", topology));
}

TEST(ZeroOneAdam, MatchesTheParameterServerForEveryPolicy) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {2, 2}}) {
    Plan fixed = plan_of("zero_one_adam", topology, 101);
    fixed.config.set("intervals", "fixed").set("doubling_steps", 0);
    compare_zero_one_adam(fixed);
    fixed.config.set("warmup_fraction", 0).set("warmup_steps", 0).set("max_interval", 5);
    fixed.config.set("variance_interval", 5).set("freeze_step", 90);
    compare_zero_one_adam(fixed);
    Plan always = plan_of("zero_one_adam", topology, 60);
    always.config.set("max_interval", 1);
    compare_zero_one_adam(always);
    always.config.set("bias_correction", false).set("update_limit", 0);  // as published
    compare_zero_one_adam(always);
    compare_zero_one_adam(plan_of("zero_one_adam", topology), [](int64_t t) { return t % 35 == 0; });
  }
}

// Gradients that begin after T_v, which ends at step 60: of every 11th element in step 70, and of another every 17
// steps on one rank. Others stay 0.
double late_gradient(int rank, int64_t step, int64_t element, double x) {
  if (element % 11 == 3 && step < 70) return 0;
  if (element % 11 == 5 && (step < 61 || step % 17 != 0 || rank != 0)) return 0;
  return element % 11 == 7 ? 0 : test::noisy_gradient(rank, step, 11 * element, x);
}

TEST(ZeroOneAdam, LateGradientsMatchTheParameterServer) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {2, 2}})
    for (const int64_t block : {1, 32}) {
      Plan plan = plan_of("zero_one_adam", topology);
      plan.config.set("refresh_variance", true).set("block_size", block);
      plan.gradient = late_gradient;
      compare_zero_one_adam(plan);
      compare_zero_one_adam(plan, [](int64_t t) { return t % 35 == 0; });
    }
}

TEST(ZeroOneAdam, ValuesWithLateGradientsTrainWithRefreshesOnly) {
  Plan plan = plan_of("zero_one_adam", {3, 1});
  plan.config.set("weight_decay", 0).set("block_size", 1);
  plan.gradient = [](int rank, int64_t step, int64_t element, double x) {
    return late_gradient(rank, step, element, x) == 0 ? 0 : 0.1;
  };
  const EachRank without = test::train_each(plan);
  plan.config.set("refresh_variance", true);
  const EachRank with = test::train_each(plan);
  const Vector &v = with.state.at({"v", 0}), &frozen = without.state.at({"v", 0});
  for (size_t j = 0; j < v.size(); ++j) {
    const bool late = j % 11 == 3 || j % 11 == 5;
    const double start = test::start_value(static_cast<int64_t>(j));
    EXPECT_EQ(with.state.at({"v", 1})[j], v[j]);
    if (late || j % 11 == 7) {
      EXPECT_EQ(frozen[j], 0);
      EXPECT_EQ(without.x[0].back()[j], start);
      EXPECT_EQ(v[j] > 0, late) << j;
      if (late) EXPECT_LT(with.x[0].back()[j], start - 1e-3) << j;
      else EXPECT_EQ(with.x[0].back()[j], start) << j;
    } else {
      EXPECT_EQ(v[j], frozen[j]) << "v of other values stays frozen";
    }
    // Step 81 is the first refresh after step 70: 12 of 21 gradients, of all ranks.
    const double of_third = 0.01 * (1 - std::pow(0.999, 12)) / (1 - std::pow(0.999, 21));
    EXPECT_NEAR(j % 11 == 3 ? v[j] : of_third, of_third, 1e-7) << j;
    // Step 69 is the first refresh after step 68: one of 9 gradients, of one of three ranks.
    const double of_fifth = 0.01 / 9 * 0.001 * 0.999 / (1 - std::pow(0.999, 9));
    EXPECT_NEAR(j % 11 == 5 ? v[j] : of_fifth, of_fifth, 1e-9) << j;
  }
}

// Without values with v = 0, refresh_variance changes neither bits nor traffic.
TEST(ZeroOneAdam, RefreshesDoNotChangeTrainedValues) {
  Plan plan = plan_of("zero_one_adam", {2, 2});
  plan.gradient = [](int rank, int64_t step, int64_t element, double x) {
    return test::noisy_gradient(rank, step, 11 * element, x);
  };
  const EachRank without = test::train_each(plan);
  plan.config.set("refresh_variance", true);
  const EachRank with = test::train_each(plan);
  EXPECT_EQ(with.x, without.x);
  EXPECT_EQ(with.state, without.state);
  EXPECT_EQ(with.stats[0].size(), without.stats[0].size());
  for (const auto& [phase, count] : with.stats[0]) EXPECT_EQ(count.calls, without.stats[0].at(phase).calls) << phase;
}

void compare_lamb(const Plan& plan) {
  SCOPED_TRACE(testing::Message() << plan.config.name() << ", " << plan.topology.nodes << " x "
                                  << plan.topology.workers_per_node);
  const EachRank run = test::train_each(plan);
  test::OneBitLambServer<float> server(plan);
  test::OneBitLambServer<double> exact(plan);
  exact.of = &server.signs;
  for (int64_t t = 1; t <= plan.steps; ++t) {
    server.step(t);
    exact.slack = 10 * kRounding * static_cast<double>(t);
    exact.step(t);
    for (const auto& of_rank : run.x) ASSERT_EQ(of_rank[static_cast<size_t>(t - 1)], wide(server.x)) << "step " << t;
    ASSERT_LE(apart(server.m, exact.m), exact.slack) << "step " << t;
  }
  EXPECT_EQ(run.state.at({"m", 0}), wide(server.m));
  if (plan.config.name() == "lamb") return;
  expect_errors(run, server.signs);
  EXPECT_EQ(run.state.at({"v_fresh", 0}), wide(server.fresh));
  int64_t at = plan.d();
  for (size_t p = 0; p < plan.sizes.size(); ++p) {
    at -= plan.sizes[p];
    EXPECT_EQ(run.state.at({"coefficient", 0})[static_cast<size_t>(at)], server.coefficient[p]);
    EXPECT_EQ(run.state.at({"factor", 0})[static_cast<size_t>(at)], server.factor[p]);
    EXPECT_NEAR(server.factor[p], exact.factor[p], 1e-3);
  }
}

TEST(OneBitLamb, EqualsAParameterServerFor200StepsOnOneToEightRanks) {
  for (const Topology& topology : kOneToEight) compare_lamb(plan_of("one_bit_lamb", topology));
  Plan published = plan_of("one_bit_lamb", {2, 2});
  published.config.set("bias_correction", false).set("update_limit", 0);
  compare_lamb(published);
}

// All gradients begin after the warm-up of 20 steps. Step 25 is the first refresh.
TEST(OneBitLamb, ARefreshBeginsBothSecondMoments) {
  Plan plan = plan_of("one_bit_lamb", {2, 1}, 25);
  plan.config.set("refresh_variance", true);
  plan.gradient = [](int, int64_t step, int64_t, double) { return step <= 20 ? 0 : 0.1; };
  const EachRank run = test::train_each(plan);
  const double adam = 0.01 * (1 - std::pow(0.999, 25));
  for (const double v : run.state.at({"v_fresh", 0})) EXPECT_NEAR(v, adam, 0.1 * adam);
}

TEST(Lamb, EqualsItsFormulas) {
  for (const Topology topology : {Topology{1, 1}, {2, 2}, {3, 1}})
    for (const bool corrected : {false, true}) {
      Plan plan = plan_of("lamb", topology, 100);
      plan.config.set("bias_correction", corrected);
      compare_lamb(plan);
    }
}

// c is 1 for a parameter that is 0, which could not leave 0 with c = min_coeff, and for an update that is 0.
TEST(Lamb, ParametersAndUpdatesOf0HaveTheCoefficient1) {
  run_local({1, 1}, [](Communicator& comm) {
    const Lamb::Options options{.lr = 0.5, .weight_decay = 0};
    Buckets buckets({{"still", Var(Tensor::full({3}, 2), true)}, {"zero", Var(Tensor::zeros({4}), true)}}, {});
    Lamb lamb(options, buckets, make_exchange("dense", buckets, comm, 1));
    Bucket& bucket = buckets[0];  // the last parameter comes first
    bucket.grad.range(0, 4).fill(-0.3);
    lamb.apply(bucket, {1, 0.5});
    EXPECT_EQ(lamb.mean_coefficients(bucket).to_vector<float>(), (std::vector<float>{1, 1}));
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(bucket.param.item(i), 0.5, 1e-5) << "m̂/√v̂ = -1";
    for (int64_t i = 4; i < 7; ++i) EXPECT_EQ(bucket.param.item(i), 2);
  });
}

}  // namespace parameter_servers_test
}  // namespace godwit
