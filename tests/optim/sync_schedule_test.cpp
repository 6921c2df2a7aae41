// The step sets of 0/1 Adam, and the traffic that follows from them.
#include "optim/sync_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace godwit {
namespace sync_schedule_test {

constexpr auto kDoubling = ZeroOneAdam::Intervals::doubling;

// Pitfall 40: intervals double after a number of steps, not of synchronizations. That number is an option (32,678 in
// the paper, not 2¹⁵).
TEST(SyncSchedule, Pitfall40FollowsThePoliciesOfThePaper) {
  SyncSchedule schedule({.warmup_steps = 12'500, .intervals = kDoubling, .doubling_steps = 32'678});
  std::vector<int64_t> syncs, variances;
  for (int64_t t = 1; t <= 200'000; ++t) {
    const SyncSchedule::Step step = schedule.at(t);
    if (step.sync) syncs.push_back(t);
    if (!step.variance) continue;
    EXPECT_EQ(step.since_variance, variances.empty() ? 1 : t - variances.back()) << t;
    variances.push_back(t);
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

// H need not be a power of two, and without the run's schedule the intervals are unknown.
TEST(SyncSchedule, IntervalsByLearningRateReachTheLargestAndNeedTheSchedule) {
  ZeroOneAdam::Options options{
      .warmup_steps = 10, .intervals = ZeroOneAdam::Intervals::learning_rate, .max_interval = 5};
  EXPECT_THROW(SyncSchedule{options}, Error);
  options.fit(Schedule({.name = "exponential", .decay_factor = 0.5, .decay_steps = 100}, 1, 1000, 1000), 1000);
  EXPECT_EQ(options.halvings.size(), 3u) << "intervals of 2, 4 and 5 steps";
  SyncSchedule schedule(options);
  int64_t last = 0, gap = 0;
  for (int64_t t = 1; t <= 1000; ++t)
    if (schedule.at(t).sync) gap = t - std::exchange(last, t);
  EXPECT_EQ(gap, 5);
  options.halvings.clear();
  options.max_interval = 1;
  EXPECT_TRUE(SyncSchedule{options}.at(1).sync) << "without local steps no schedule is needed";
}

// The abstract of the paper compares with 1-bit Adam, which sends 16 bits per value in its warm-up and 1 bit
// afterwards: up to 87 % fewer bytes and 54 % fewer rounds. Scales are not counted.
TEST(SyncSchedule, ZeroOneAdamSendsLessThan1BitAdam) {
  struct Run {
    const char* task;
    int64_t steps, warmup, doubling, warmup_of_1_bit_adam;
    double fewer_bytes, fewer_bytes_than_16_bits, fewer_rounds;
  };
  for (const Run& run : {Run{"ImageNet", 450'450, 50'050, 50'050, 50'050, 0.867, 0.978, 0.653},
                         {"BERT-Base", 153'000, 12'500, 32'678, 16'000, 0.803, 0.968, 0.514},
                         {"BERT-Large", 152'000, 12'500, 32'678, 23'000, 0.845, 0.968, 0.511}}) {
    SCOPED_TRACE(run.task);
    SyncSchedule schedule({.warmup_steps = run.warmup, .intervals = kDoubling, .doubling_steps = run.doubling});
    int64_t rounds = 0, bits = 0;
    for (int64_t t = 1; t <= run.steps; ++t) {
      const SyncSchedule::Step step = schedule.at(t);
      rounds += step.sync;
      bits += step.sync + 16 * step.variance;
    }
    const auto fewer = [](int64_t than, int64_t is) { return 1 - static_cast<double>(is) / static_cast<double>(than); };
    const int64_t one_bit_adam = run.steps + 15 * run.warmup_of_1_bit_adam;
    EXPECT_NEAR(fewer(one_bit_adam, bits), run.fewer_bytes, 0.0005);
    EXPECT_NEAR(fewer(16 * run.steps, bits), run.fewer_bytes_than_16_bits, 0.0005);
    EXPECT_NEAR(fewer(run.steps, rounds), run.fewer_rounds, 0.0005);
  }
}

TEST(SyncSchedule, VarianceChangesAreCountedUntilItIsFrozen) {
  const ZeroOneAdam::Options bert{.warmup_steps = 12'500, .intervals = kDoubling, .doubling_steps = 32'678};
  EXPECT_EQ(variance_changes(bert, 153'000), 183);
  EXPECT_EQ(variance_changes(bert, 16), 16);
  EXPECT_EQ(variance_changes({.warmup_steps = 11, .intervals = kDoubling}, 100), 19)
      << "16 consecutive steps, then every second step up to 22";
  EXPECT_EQ(variance_changes({.warmup_steps = 4, .intervals = ZeroOneAdam::Intervals::fixed}, 100), 5);
}

// After T_v, which ends at step 45,178, refreshes are at h·1, h·3, h·7, …, h = 2,823, or at the first step of the
// interval.
TEST(SyncSchedule, RefreshesBeginIntervalsAndDoubleTheirDistance) {
  SyncSchedule schedule({.warmup_steps = 12'500, .intervals = kDoubling, .doubling_steps = 32'678});
  const int64_t end = schedule.last_variance();
  EXPECT_EQ(end, 45'178);
  std::vector<int64_t> refreshes;
  bool first = true;
  for (int64_t t = 1; t <= 153'000; ++t) {
    const SyncSchedule::Step step = schedule.at(t);
    if (step.refresh) {
      EXPECT_TRUE(first && !step.variance) << t;
      refreshes.push_back(t - end);
    }
    first = step.sync;
  }
  ASSERT_EQ(refreshes.size(), 5u);
  for (size_t j = 0; j < refreshes.size(); ++j) {
    const int64_t due = 2823 * ((int64_t{2} << j) - 1);
    EXPECT_LE(refreshes[j], due);
    EXPECT_GT(refreshes[j], due - 16) << "an interval has at most 16 steps";
  }
  SyncSchedule always({.warmup_steps = 5, .max_interval = 1});
  for (int64_t t = 1; t <= 1000; ++t) EXPECT_FALSE(always.at(t).refresh) << "T_v does not end";
}

}  // namespace sync_schedule_test
}  // namespace godwit
