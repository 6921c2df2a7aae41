// The end of the warm-up of 1-bit Adam and 1-bit LAMB, and later refreshes of the second moment.
#include "optim/variance_freeze.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "comm/transport/local.h"
#include "optim/late_variance.h"

namespace godwit {
namespace variance_freeze_test {

using Refresh = VarianceFreeze::Refresh;

// One parameter of four values: v̂ after each of two refreshes, in steps 25 and `last`, after a warm-up of 20 steps with
// the gradient `warm`. The gradient is `first` up to step 25 and then `second`.
std::vector<double> refreshed(const std::array<double, 4>& warm, const std::array<double, 4>& first,
                              const std::array<double, 4>& second, int64_t last = 35,
                              Refresh refresh = Refresh::follow) {
  std::vector<double> all;
  run_local({1, 1}, [&](Communicator& comm) {
    Buckets buckets({{"x", Var(Tensor::zeros({4}), true)}}, {});
    Bucket& bucket = *buckets.begin();
    VarianceFreeze freeze("one_bit_adam", WarmupEnd::fixed, 20, 0.999, refresh, buckets);
    const Tensor v = Tensor::zeros({bucket.padded_numel()});
    const auto set = [&](const std::array<double, 4>& g) {
      for (size_t j = 0; j < 4; ++j) bucket.grad.data<float>()[j] = static_cast<float>(g[j]);
    };
    for (int64_t step = 1; freeze.warming_up(step); ++step) {
      set(warm);
      freeze.measure(bucket);
      for (size_t j = 0; j < 4; ++j) {
        float& now = v.data<float>()[j];
        now = static_cast<float>(0.999 * static_cast<double>(now) + 0.001 * warm[j] * warm[j]);
      }
    }
    const double correction = 1 - std::pow(0.999, 20);
    LateVariance late(true, 0.999, 1);
    const Tensor e = Tensor::zeros({bucket.numel});
    for (int64_t step = 21; step <= last; ++step) {
      EXPECT_FALSE(freeze.warming_up(step));
      set(step <= 25 ? first : second);
      late.begin(step, freeze.frozen_at());
      late.measure(bucket, v, e);
      if (!freeze.refreshes(step)) continue;
      const Tensor mean = late.exchange(bucket, v, e, *comm.world, DenseWire::f32, "refresh");
      if (step != 25 && step != last) continue;
      refresh_variance(freeze, late, bucket, v, mean, correction);
      for (size_t j = 0; j < 4; ++j) all.push_back(static_cast<double>(v.data<float>()[j]) / correction);
    }
  });
  return all;
}

void expect_near(const std::vector<double>& is, const std::vector<double>& expected) {
  ASSERT_EQ(is.size(), expected.size());
  for (size_t i = 0; i < is.size(); ++i) EXPECT_NEAR(is[i], expected[i], 1e-4 * expected[i]) << i;
}

// v̂ of a value with its first gradient after the warm-up is Adam's for a run that begins there; the change of a tensor
// is measured where v was not 0.
TEST(Refresh, MeasuresTheChangeWhereTheSecondMomentIsNotZero) {
  const double late = 4 * (1 - std::pow(0.999, 10)) / (1 - std::pow(0.999, 15));
  expect_near(refreshed({1, 1, 0, 0}, {1, 1, 50, 0}, {1, 1, 50, 2}), {1, 1, 2500, 0, 1, 1, 2500, late});
  expect_near(refreshed({0, 0, 0, 0}, {1, 1, 1, 1}, {10, 10, 10, 10}), {1, 1, 1, 1, 100, 100, 100, 100});
}

// Adam's ‖v̂‖₁ is reached if ĝ² of all steps since the previous refresh equals ĝ² of this refresh.
TEST(Refresh, SecondMomentsFollowAdams) {
  const auto adam = [](double first, double second) {
    double v = 0;
    std::vector<double> all;
    for (int step = 1; step <= 35; ++step) {
      v = 0.999 * v + 0.001 * (step <= 20 ? 1 : step <= 25 ? first : second);
      if (step == 25 || step == 35) all.insert(all.end(), 4, v / (1 - std::pow(0.999, step)));
    }
    return all;
  };
  expect_near(refreshed({1, 1, 1, 1}, {0.5, 0.5, 0.5, 0.5}, {0.1, 0.1, 0.1, 0.1}), adam(0.25, 0.01));
  expect_near(refreshed({1, 1, 1, 1}, {1.5, 1.5, 1.5, 1.5}, {1, 1, 1, 1}), adam(2.25, 1));
  const double first = adam(2.25, 0)[0];
  expect_near(refreshed({1, 1, 1, 1}, {1.5, 1.5, 1.5, 1.5}, {3, 3, 3, 3}), {first, first, first, first, 9, 9, 9, 9});
}

TEST(Refresh, GrowthIsLimited) {
  const std::vector<double> v = refreshed({1e-18, 1e-18, 1e-18, 1e-18}, {1e3, 1e3, 1e3, 1e3}, {1e3, 1e3, 1e3, 1e3}, 25);
  ASSERT_EQ(v.size(), 4u);
  for (const double x : v) EXPECT_TRUE(std::isfinite(x) && x > 0) << x;
}

// After 2,560 steps without a refresh, Adam's weight of these steps is 0.93.
TEST(Refresh, OneBatchCannotReplaceTheSecondMoment) {
  expect_near(refreshed({1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}, 20 + 5 * 1023), {1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5});
}

TEST(Refresh, OutgrownSecondMomentsAloneMayChange) {
  expect_near(refreshed({1, 1, 1, 1}, {0.5, 0.5, 0.5, 0.5}, {3, 3, 3, 3}, 35, Refresh::outgrown),
              {1, 1, 1, 1, 9, 9, 9, 9});
}

TEST(Refresh, StepsDoubleTheirDistance) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 200; ++step)
    if (has_refresh(20, 5, step, step)) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{25, 35, 55, 95, 175}));
  EXPECT_TRUE(has_refresh(20, 5, 90, 95));
  EXPECT_TRUE(has_refresh(20, 5, 95, 110));
  EXPECT_TRUE(has_refresh(20, 5, 1, 1'000'000));
  EXPECT_FALSE(has_refresh(20, 5, 56, 94));
  EXPECT_FALSE(has_refresh(20, 5, 1, 24));
}

// Without sharding, all ranks have all parameters.
TEST(FreezeCounters, RefusesTheNormsOfOtherParameters) {
  const auto freeze = [](const char* parameter) {
    const Buckets buckets({{parameter, Var(Tensor::zeros({4}), true)}}, {});
    return VarianceFreeze("one_bit_adam", WarmupEnd::fixed, 20, 0.999, Refresh::follow, buckets);
  };
  freeze("x").restore(freeze("x").counters(), {});
  try {
    freeze("x").restore(freeze("y").counters(), {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "one_bit_adam: the checkpoint has the norms of other parameters; resume with the same model");
  }
}

// The criterion on squared norms that are given directly.
class Freeze : public testing::Test {
 protected:
  // The last step of the warm-up when ‖ĝ‖² of the two parameters is as given, and the event after it. Every eighth step
  // ends as if the run continued from a checkpoint.
  std::pair<int64_t, std::string> end_of(const std::function<double(int64_t)>& large,
                                         const std::function<double(int64_t)>& small, int64_t limit = 400,
                                         WarmupEnd end = WarmupEnd::automatic) {
    Buckets buckets({{"large", Var(Tensor::zeros({990}), true)}, {"small", Var(Tensor::zeros({10}), true)}}, {});
    const VarianceFreeze fresh("one_bit_adam", end, limit, 0.99, Refresh::follow, buckets);
    VarianceFreeze freeze = fresh;
    for (int64_t step = 1; freeze.warming_up(step); ++step) {
      for (Bucket& bucket : buckets) {
        for (const Slot& slot : bucket.slots)
          bucket.grad.range(slot.offset, slot.numel)
              .fill(std::sqrt((slot.name == "large" ? large : small)(step) / static_cast<double>(slot.numel)));
        freeze.measure(bucket);
      }
      if (step % 8 != 0) continue;
      const std::vector<double> counters = freeze.counters();
      freeze = fresh;
      freeze.restore(counters, {});
    }
    for (const double number : freeze.counters()) EXPECT_TRUE(std::isfinite(number)) << "checkpoints refuse it";
    return {freeze.frozen_at(), freeze.event(freeze.frozen_at() + 1)};
  }
  static double constant(int64_t) { return 3; }
};

TEST_F(Freeze, EndsTheWarmUpOnceTheSecondMomentsHaveSettled) {
  const auto [step, event] = end_of(constant, constant);
  EXPECT_EQ(step, 110) << "the first test compares steps 110 and 10";
  EXPECT_EQ(event, "one_bit_adam: the warm-up ended after step 110, because the second moments have settled");
  const auto falls = [](int64_t t) { return t <= 50 ? 100.0 : 1.0; };
  const auto rises = [](int64_t t) { return t <= 50 ? 1.0 : 100.0; };
  for (const auto& changes : {std::function<double(int64_t)>(falls), std::function<double(int64_t)>(rises)}) {
    const int64_t late = end_of(changes, constant, 5000).first;
    EXPECT_GT(late, 200) << "two-sided: neither a fall nor a rise counts as settled";
    EXPECT_LT(late, 1000);
  }
  EXPECT_EQ(end_of(constant, rises).first, 110) << "tensors with 1 % of the values do not delay it";
}

TEST_F(Freeze, TheLimitEndsTheWarmUpAndNamesWhatStillChanges) {
  const auto grows = [](int64_t t) { return std::pow(1.02, static_cast<double>(t)); };
  const auto [step, event] = end_of(grows, constant);
  EXPECT_EQ(step, 400);
  EXPECT_NE(event.find("ended after step 400, its limit; these second moments still changed over 100 steps: large ("),
            std::string::npos)
      << event;
  EXPECT_EQ(event.find("small"), std::string::npos);
  const auto late = [](int64_t t) { return t <= 50 ? 0.0 : 1.0; };
  EXPECT_NE(end_of(late, constant, 115).second.find("over 100 steps: large (from 0)"), std::string::npos);
  EXPECT_NE(end_of(constant, constant, 50).second.find("too short to tell"), std::string::npos);
  EXPECT_EQ(end_of(constant, constant, 200, WarmupEnd::fixed),
            (std::pair<int64_t, std::string>(200, "one_bit_adam: the warm-up ended after step 200")));
}

}  // namespace variance_freeze_test
}  // namespace godwit
