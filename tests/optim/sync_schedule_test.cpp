// The step sets of 0/1 Adam, and the traffic that follows from them.
#include "optim/sync_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace godwit {
namespace {

// Pitfall 40: intervals double after a number of steps, not of synchronizations. That number is an option (32,678 in
// the paper, not 2¹⁵).
TEST(SyncSchedule, Pitfall40FollowsThePoliciesOfThePaper) {
  SyncSchedule schedule({.warmup_steps = 12'500, .doubling_steps = 32'678});
  std::vector<int64_t> syncs, variances;
  for (int64_t t = 1; t <= 200'000; ++t) {
    const SyncSchedule::Step step = schedule.at(t);
    if (step.sync) syncs.push_back(t);
    if (step.variance) variances.push_back(t);
  }
  ASSERT_EQ(variances.size(), 183u);
  for (int64_t j = 0; j < 16; ++j) EXPECT_EQ(variances[static_cast<size_t>(j)], j + 1);
  EXPECT_EQ(variances[16], 17) << "k_{j+1} = k_j + 2^⌊j/16⌋";
  EXPECT_EQ(variances[17], 19);
  EXPECT_LE(variances.back(), 12'500 + 32'678);
  EXPECT_EQ(syncs[45'177], 45'178) << "every step until the first interval of two";
  EXPECT_EQ(syncs[45'178], 45'180);
  for (size_t i = 1; i < syncs.size(); ++i) {
    const int64_t gap = syncs[i] - syncs[i - 1], after = syncs[i - 1] - 12'500;
    EXPECT_EQ(gap, after <= 0 ? 1 : std::min<int64_t>(16, int64_t{1} << (after / 32'678)));
  }
  EXPECT_EQ(syncs.back() - syncs[syncs.size() - 2], 16) << "limited to H";
}

// The paper derives the 32,678 steps from the schedule: the intervals double when the learning rate has halved.
TEST(SyncSchedule, IntervalsFollowTheLearningRate) {
  ZeroOneAdam::Options options{.warmup_steps = 12'500, .intervals = ZeroOneAdam::Intervals::learning_rate};
  const Schedule rates({.name = "exponential", .warmup_steps = 12'500}, 4e-4, 1000, 153'000);
  options.fit(rates, 153'000);
  SyncSchedule schedule(options);
  int64_t last = 0, gaps_of_two = 0;
  for (int64_t t = 1; t <= 153'000; ++t) {
    if (!schedule.at(t).sync) continue;
    const double fallen = rates.lr(12'500) / rates.lr(std::max<int64_t>(last, 12'500));
    EXPECT_EQ(t - last, std::min<int64_t>(16, int64_t{1} << static_cast<int>(std::log2(fallen) + 1e-12))) << t;
    gaps_of_two += t - last == 2;
    last = t;
  }
  EXPECT_EQ(gaps_of_two, 69 * 520 / 2) << "69 decays of 1 % halve the rate, after 35,880 steps";
}

// The abstract of the paper compares with 1-bit Adam, which sends 16 bits per value in its warm-up and 1 bit
// afterwards: up to 87 % fewer bytes and 54 % fewer rounds.
TEST(SyncSchedule, ZeroOneAdamOnTheBertPolicySendsLessThan1BitAdam) {
  SyncSchedule schedule({.warmup_steps = 12'500, .doubling_steps = 32'678});
  const double scales = 32.0 / 4096;  // bits per value
  int64_t rounds = 0, steps = 0, first = 0;
  double bits = 0;
  const auto until = [&](int64_t end) {
    while (steps < end) {
      const SyncSchedule::Step step = schedule.at(++steps);
      rounds += step.sync + step.variance;
      bits += step.sync * (1 + scales) + step.variance * 16;
      if (first == 0 && steps > 100'000 && static_cast<double>(rounds) <= 0.46 * static_cast<double>(steps))
        first = steps;
    }
  };
  const auto one_bit_adam = [&](int64_t warmup, int64_t all) {
    return 16 * static_cast<double>(warmup) + (1 + scales) * static_cast<double>(all - warmup);
  };
  until(152'000);  // BERT-Large
  EXPECT_NEAR(1 - bits / one_bit_adam(23'000, 152'000), 0.844, 0.0005);
  until(153'000);  // BERT-Base: 118,000 steps with length 128 and 35,000 with length 512
  EXPECT_NEAR(1 - bits / one_bit_adam(16'000, 153'000), 0.802, 0.0005);
  EXPECT_NEAR(1 - bits / (16 * 153'000.0), 0.968, 0.001) << "compared with 16-bit Adam";
  EXPECT_NEAR(1 - static_cast<double>(rounds) / 153'000, 0.513, 0.001);
  until(200'000);
  EXPECT_EQ(first, 163'531) << "runs of at least this length have 54 % fewer rounds";
}

TEST(SyncSchedule, VarianceChangesAreCountedUntilItIsFrozen) {
  const ZeroOneAdam::Options bert{.warmup_steps = 12'500, .doubling_steps = 32'678};
  EXPECT_EQ(variance_changes(bert, 153'000), 183);
  EXPECT_EQ(variance_changes(bert, 16), 16);
  EXPECT_EQ(variance_changes({.warmup_steps = 11}, 100), 19) << "16 consecutive steps, then every second step up to 22";
}

}  // namespace
}  // namespace godwit
