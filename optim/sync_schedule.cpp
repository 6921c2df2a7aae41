#include "optim/sync_schedule.h"

#include <algorithm>
#include <limits>

#include "optim/late_variance.h"

namespace godwit {

using Intervals = ZeroOneAdam::Intervals;

SyncSchedule::SyncSchedule(const ZeroOneAdam::Options& options) : options_(options) {
  if (options_.doubling_steps == 0) options_.doubling_steps = options_.warmup_steps;
  check(options_.intervals != Intervals::doubling || options_.max_interval == 1 || options_.doubling_steps > 0,
        "zero_one_adam: intervals=doubling without a warm-up needs doubling_steps, the steps between doublings");
  check(
      options_.intervals != Intervals::learning_rate || options_.max_interval == 1 || !options_.halvings.empty(),
      "zero_one_adam: intervals 'learning_rate' need the schedule of the run; call for_run(), or fit() of the options");
  next_sync_ = gap(0);
  last_variance_ = options_.freeze_step;
  if (options_.freeze_step > 0) {
    // One pass over T_v, until freeze_step or the first contradiction.
    SyncSchedule trial = *this;
    for (int64_t t = 1; t <= options_.freeze_step; t = trial.next_variance_) {
      trial.advance(t);
      check(t == trial.last_sync_ + 1,
            "zero_one_adam: T_u and T_v contradict each other: the variance would change at step ", t,
            ", within the local steps ", trial.last_sync_ + 1, " to ", trial.next_sync_, "; lower freeze_step (",
            options_.freeze_step, ") to ", t - 1, " or less, or choose warmup_steps (", options_.warmup_steps,
            ") and variance_interval (", options_.variance_interval, ") so that T_v's steps are among T_u's");
      trial.advance(t + 1);
    }
    return;
  }
  check(gap(0) == 1, "zero_one_adam: T_u and T_v contradict each other: the first interval already has ", gap(0),
        " steps, so the variance would never change; give a warm-up, or freeze_step");
  if (options_.max_interval == 1) {
    last_variance_ = std::numeric_limits<int64_t>::max();
  } else {  // the last step before the first interval above one step
    const auto& halvings = options_.halvings;
    last_variance_ = options_.intervals == Intervals::doubling ? options_.warmup_steps + options_.doubling_steps
                     : options_.intervals == Intervals::fixed  ? options_.warmup_steps + 1
                                                               : halvings.front();
  }
}

int64_t SyncSchedule::gap(int64_t step) const {
  const int64_t after = step - options_.warmup_steps;
  if (after <= 0 && options_.warmup_steps > 0) return 1;
  if (options_.intervals == Intervals::fixed) return options_.max_interval;
  if (options_.intervals == Intervals::learning_rate) {
    const auto& halvings = options_.halvings;
    const auto passed = std::upper_bound(halvings.begin(), halvings.end(), step) - halvings.begin();
    return std::min<int64_t>(options_.max_interval, int64_t{1} << passed);
  }
  const int64_t doublings = options_.doubling_steps > 0 ? std::max<int64_t>(after, 0) / options_.doubling_steps : 0;
  return doublings >= 40 ? options_.max_interval : std::min<int64_t>(options_.max_interval, int64_t{1} << doublings);
}

void SyncSchedule::advance(int64_t step) {
  for (; next_sync_ < step; next_sync_ += gap(last_sync_)) last_sync_ = next_sync_;
  for (; next_variance_ < step; ++variance_index_) {
    before_variance_ = next_variance_;
    next_variance_ += options_.variance_interval > 0
                          ? options_.variance_interval
                          : int64_t{1} << std::min<int64_t>(variance_index_ / options_.kappa, 40);
  }
}

SyncSchedule::Step SyncSchedule::at(int64_t step) {
  check(step > last_sync_, "zero_one_adam: step ", step, " after step ", last_sync_, "; steps must ascend");
  advance(step);
  const bool refresh = step == last_sync_ + 1 && step > last_variance_ &&
                       has_refresh(last_variance_, std::max<int64_t>(last_variance_ / 16, 1), step, next_sync_);
  return {step == next_sync_, step == next_variance_ && step <= last_variance_, refresh, step - before_variance_};
}

int64_t variance_changes(const ZeroOneAdam::Options& options, int64_t steps) {
  SyncSchedule schedule(options);
  int64_t changes = 0;
  for (int64_t step = 1; step <= std::min(steps, schedule.last_variance()); ++step)
    changes += schedule.at(step).variance;
  return changes;
}

int64_t synchronizations(const ZeroOneAdam::Options& options, int64_t steps) {
  SyncSchedule schedule(options);
  int64_t rounds = 0;
  for (int64_t step = 1; step <= steps; ++step) rounds += schedule.at(step).sync;
  return rounds;
}

}  // namespace godwit
