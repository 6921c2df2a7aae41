#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "engine/check.h"

namespace godwit {
namespace schedule_test {

TEST(Schedule, ConstantWithWarmup) {
  const Schedule schedule({.warmup_epochs = 0.5}, 0.8, 8, 20);
  EXPECT_DOUBLE_EQ(schedule.lr(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.lr(2), 0.4);
  EXPECT_DOUBLE_EQ(schedule.lr(4), 0.8);
  EXPECT_DOUBLE_EQ(schedule.lr(20), 0.8);
  EXPECT_DOUBLE_EQ(schedule.lr(1000), 0.8);
}

TEST(Schedule, WarmupInEpochsStepsOrAsAFraction) {
  for (const ScheduleConfig& config : {ScheduleConfig{.warmup_epochs = 0.5}, ScheduleConfig{.warmup_fraction = 0.2},
                                       ScheduleConfig{.warmup_steps = 4}}) {
    const Schedule schedule(config, 0.8, 8, 20);
    EXPECT_DOUBLE_EQ(schedule.lr(3), 0.6);
    EXPECT_DOUBLE_EQ(schedule.lr(4), 0.8);
  }
  EXPECT_DOUBLE_EQ(Schedule({.warmup_fraction = 1}, 1, 8, 10).lr(9), 0.9);
}

// ResNet-50 in the Birder paper: ×0.1 at epochs 30, 60 and 90 of 100.
TEST(Schedule, MultiStepDropsAtTheFirstStepOfAnEpoch) {
  const Schedule schedule({.name = "multi_step", .milestones = {30, 60, 90}}, 0.1, 100, 10'000);
  EXPECT_DOUBLE_EQ(schedule.lr(1), 0.1);
  EXPECT_DOUBLE_EQ(schedule.lr(3000), 0.1);
  EXPECT_DOUBLE_EQ(schedule.lr(3001), 0.01);
  EXPECT_DOUBLE_EQ(schedule.lr(6001), 0.001);
  EXPECT_DOUBLE_EQ(schedule.lr(10'000), 0.0001);
  EXPECT_DOUBLE_EQ(Schedule({.name = "multi_step", .milestones = {0.5}}, 1, 10, 10).lr(6), 0.1);
}

// SQuAD in the Birder paper: 500 steps up to 1e−4, then linearly to 0.
TEST(Schedule, LinearReachesZeroAfterTheLastStep) {
  const Schedule schedule({.name = "linear", .warmup_epochs = 0.5}, 1e-4, 1000, 2499);
  EXPECT_DOUBLE_EQ(schedule.lr(250), 0.5e-4);
  EXPECT_DOUBLE_EQ(schedule.lr(500), 1e-4);
  EXPECT_DOUBLE_EQ(schedule.lr(1500), 0.5e-4);
  EXPECT_NEAR(schedule.lr(2499), 1e-4 / 2000, 1e-18) << "the last step has a nonzero rate";
  EXPECT_DOUBLE_EQ(schedule.lr(9999), schedule.lr(2499));
  const Schedule plain({.name = "linear", .final_fraction = 0.1}, 1, 10, 10);
  EXPECT_DOUBLE_EQ(plain.lr(1), 1) << "the first step has the full rate";
  EXPECT_DOUBLE_EQ(plain.lr(6), 0.55);
  EXPECT_DOUBLE_EQ(plain.lr(10), 0.19);
}

// BERT in the 0/1 Adam paper: 12,500 steps up to 4e−4, then ×0.99 after every 520 steps.
TEST(Schedule, ExponentialDecaysAfterEveryDecaySteps) {
  const Schedule schedule({.name = "exponential", .warmup_steps = 12'500}, 4e-4, 1000, 153'000);
  EXPECT_DOUBLE_EQ(schedule.lr(6250), 2e-4);
  for (const auto& [step, decays] :
       {std::pair{12'500, 0}, {13'019, 0}, {13'020, 1}, {13'539, 1}, {13'540, 2}, {153'000, 270}})
    EXPECT_NEAR(schedule.lr(step), 4e-4 * std::pow(0.99, decays), 1e-15) << step;
  const Schedule plain({.name = "exponential", .decay_factor = 0.5, .decay_steps = 3}, 1, 10, 10);
  EXPECT_DOUBLE_EQ(plain.lr(2), 1);
  EXPECT_DOUBLE_EQ(plain.lr(3), 0.5);
}

// BERT-Large with LAMB and 1-bit LAMB in DeepSpeed's recipe, 64K texts of 128 tokens: from 1e−3 along a square to
// 12e−3, then ×0.9 after every 250 steps.
TEST(Schedule, WarmupRisesFromAStartAlongAPower) {
  const Schedule schedule({.name = "exponential",
                           .warmup_steps = 450,
                           .warmup_power = 2,
                           .warmup_start = 1.0 / 12,
                           .decay_factor = 0.9,
                           .decay_steps = 250},
                          12e-3, 1000, 5993);
  for (const int step : {1, 2, 225, 449, 450})
    EXPECT_NEAR(schedule.lr(step), 1e-3 + 11e-3 * (step / 450.0) * (step / 450.0), 1e-17) << step;
  EXPECT_NEAR(schedule.lr(700), 12e-3 * 0.9, 1e-17);
  EXPECT_NEAR(schedule.lr(5993), 12e-3 * std::pow(0.9, 22), 1e-17);
  EXPECT_NEAR(Schedule({.warmup_steps = 4, .warmup_power = 0.5}, 1, 8, 8).lr(1), 0.5, 1e-15);
  EXPECT_DOUBLE_EQ(Schedule({.warmup_steps = 4, .warmup_start = 1}, 0.3, 8, 8).lr(1), 0.3);
}

// A stage of BERT in the LAMB paper: linear warm-up, then η0·(1 − t/T), with t from the end of the warm-up.
TEST(Schedule, PolynomialOfPowerOneIsLambsSchedule) {
  const Schedule polynomial({.name = "polynomial", .warmup_steps = 20}, 0.01, 10, 119);
  const Schedule linear({.name = "linear", .warmup_steps = 20}, 0.01, 10, 119);
  for (int64_t step = 1; step <= 119; ++step) {
    EXPECT_DOUBLE_EQ(polynomial.lr(step), linear.lr(step));
    const double formula =
        step < 20 ? 0.01 * static_cast<double>(step) / 20 : 0.01 * static_cast<double>(120 - step) / 100;
    EXPECT_NEAR(polynomial.lr(step), formula, 1e-16) << step;
  }
}

// HuggingFace's get_linear_schedule_with_warmup without warm-up: (T − k)/T at step k, counted from 0.
TEST(Schedule, LinearMatchesHuggingFaceWithoutWarmup) {
  const Schedule schedule({.name = "linear"}, 1, 10, 40);
  for (int64_t k = 0; k < 40; ++k) EXPECT_NEAR(schedule.lr(k + 1), static_cast<double>(40 - k) / 40, 1e-15);
}

TEST(Schedule, NoStepHasALearningRateOfZero) {
  for (const std::string& name : schedule_names())
    for (const int64_t total : {1, 2, 3, 100})
      for (const double warmup : {0.0, 0.1, 1.0}) {
        const Schedule schedule({.name = name, .warmup_fraction = warmup, .milestones = {1, 2}}, 1, 10, total);
        for (int64_t step = 1; step <= total; ++step)
          EXPECT_GT(schedule.lr(step), 0) << name << ": step " << step << " of " << total << ", warm-up " << warmup;
      }
}

TEST(Schedule, CosineAndPolynomial) {
  const Schedule cosine({.name = "cosine", .warmup_epochs = 1, .final_fraction = 0.2}, 1, 10, 109);
  EXPECT_DOUBLE_EQ(cosine.lr(10), 1);
  EXPECT_DOUBLE_EQ(cosine.lr(60), 0.6);
  EXPECT_NEAR(cosine.lr(109), 0.2 + 0.8 * (1 + std::cos(0.99 * std::numbers::pi)) / 2, 1e-15);
  EXPECT_NEAR(cosine.lr(35), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  const Schedule polynomial({.name = "polynomial", .power = 2}, 1, 10, 100);
  EXPECT_DOUBLE_EQ(polynomial.lr(51), 0.25);
  EXPECT_NEAR(polynomial.lr(100), 1e-4, 1e-15);
}

TEST(Schedule, RisesDuringTheWarmupAndFallsAfterIt) {
  for (const std::string& name : schedule_names()) {
    for (const int64_t total : {1, 2, 7, 50}) {
      for (const double warmup : {0.0, 0.1, 0.5}) {
        if (std::round(warmup * 10) > static_cast<double>(total)) continue;
        const Schedule schedule({.name = name, .warmup_epochs = warmup, .milestones = {1, 2}}, 1, 10, total);
        const int64_t peak = std::max<int64_t>(1, std::llround(warmup * 10));
        for (int64_t step = 2; step <= total + 3; ++step) {
          const double before = schedule.lr(step - 1), now = schedule.lr(step);
          EXPECT_TRUE(step <= peak ? now > before : now <= before) << name << " " << step << " of " << total;
          EXPECT_TRUE(now >= 0 && now <= 1);
        }
        EXPECT_DOUBLE_EQ(schedule.lr(peak), 1);
      }
    }
  }
}

TEST(Schedule, RefusesContradictorySettings) {
  const auto make = [](const ScheduleConfig& config, double lr = 0.1, int64_t per_epoch = 10, int64_t total = 100) {
    return Schedule(config, lr, per_epoch, total);
  };
  const double nan = std::nan(""), infinity = INFINITY;
  EXPECT_THROW(make({.name = "cosin"}), Error);
  for (const double lr : {nan, infinity, -0.1}) EXPECT_THROW(make({}, lr), Error);
  EXPECT_THROW(make({}, 0.1, 0), Error);
  EXPECT_THROW(make({}, 0.1, 10, 0), Error);
  for (const double epochs : {nan, infinity, -1.0, 10.1}) EXPECT_THROW(make({.warmup_epochs = epochs}), Error);
  EXPECT_NO_THROW(make({.warmup_epochs = 10}));
  for (const double fraction : {nan, infinity, -0.1, 1.1}) EXPECT_THROW(make({.warmup_fraction = fraction}), Error);
  EXPECT_THROW(make({.warmup_steps = -1}), Error);
  EXPECT_THROW(make({.warmup_steps = 101}), Error);
  EXPECT_THROW(make({.warmup_fraction = 0.1, .warmup_steps = 10}), Error);
  const auto milestones = [&](std::vector<double> at) { make({.name = "multi_step", .milestones = std::move(at)}); };
  EXPECT_THROW(milestones({}), Error);
  EXPECT_THROW(milestones({30, 30}), Error);
  EXPECT_THROW(milestones({30, 20}), Error);
  EXPECT_THROW(milestones({0, 20}), Error);
  EXPECT_THROW(milestones({nan}), Error);
  for (const double bad : {nan, -0.1, 1.1}) EXPECT_THROW(make({.warmup_start = bad}), Error);
  for (const double bad : {nan, infinity, 0.0, -1.0}) {
    EXPECT_THROW(make({.warmup_power = bad}), Error);
    EXPECT_THROW(make({.name = "polynomial", .power = bad}), Error);
    EXPECT_THROW(make({.name = "multi_step", .milestones = {3}, .gamma = bad}), Error);
  }
  for (const double bad : {nan, -0.1, 1.1}) EXPECT_THROW(make({.name = "linear", .final_fraction = bad}), Error);
  EXPECT_THROW(make({}).lr(0), Error);
  try {
    make({.name = "cosin"});
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'cosine'"), std::string::npos) << error.what();
  }
}

}  // namespace schedule_test
}  // namespace godwit
