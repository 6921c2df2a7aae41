#include "optim/sync_schedule.h"

#include <algorithm>
#include <limits>

namespace godwit {

StepSets::StepSets(const OptimizerConfig& config) : config_(config) {
  if (config_.doubling_steps == 0) config_.doubling_steps = config_.warmup_steps;
  check(config_.intervals != "doubling" || config_.max_interval == 1 || config_.doubling_steps > 0, config_.name,
        ": without a warm-up doubling_steps must say after how many steps the intervals double");
  next_sync_ = gap(0);
  last_variance_ = config_.freeze_step;
  if (config_.freeze_step > 0) {
    // One pass over T_v, until freeze_step or the first contradiction.
    StepSets trial = *this;
    for (int64_t t = 1; t <= config_.freeze_step; t = trial.next_variance_) {
      trial.advance(t);
      check(t == trial.last_sync_ + 1, config_.name,
            ": T_u and T_v contradict each other: the variance would change at step ", t, ", within the local steps ",
            trial.last_sync_ + 1, " to ", trial.next_sync_, "; lower freeze_step (", config_.freeze_step, ") to ",
            t - 1, " or less, or choose warmup_steps (", config_.warmup_steps, ") and variance_interval (",
            config_.variance_interval, ") so that T_v's steps are among T_u's");
      trial.advance(t + 1);
    }
    return;
  }
  check(gap(0) == 1, config_.name, ": T_u and T_v contradict each other: the first interval already has ", gap(0),
        " steps, so the variance would never change; give a warm-up, or freeze_step");
  if (config_.max_interval == 1) {
    last_variance_ = std::numeric_limits<int64_t>::max();
  } else {  // the last step before the first interval above one step
    last_variance_ = config_.warmup_steps + (config_.intervals == "doubling" ? config_.doubling_steps : 1);
  }
}

int64_t StepSets::gap(int64_t step) const {
  const int64_t after = step - config_.warmup_steps;
  if (after <= 0 && config_.warmup_steps > 0) return 1;
  if (config_.intervals == "fixed") return config_.max_interval;
  const int64_t doublings = config_.doubling_steps > 0 ? std::max<int64_t>(after, 0) / config_.doubling_steps : 0;
  return doublings >= 40 ? config_.max_interval : std::min<int64_t>(config_.max_interval, int64_t{1} << doublings);
}

void StepSets::advance(int64_t step) {
  for (; next_sync_ < step; next_sync_ += gap(last_sync_)) last_sync_ = next_sync_;
  for (; next_variance_ < step; ++variance_index_)
    next_variance_ += config_.variance_interval > 0
                          ? config_.variance_interval
                          : int64_t{1} << std::min<int64_t>(variance_index_ / config_.kappa, 40);
}

StepSets::Step StepSets::at(int64_t step) {
  check(step > last_sync_, config_.name, ": step ", step, " after step ", last_sync_, "; steps must ascend");
  advance(step);
  return {step == next_sync_, step == next_variance_ && step <= last_variance_};
}

int64_t variance_changes(const OptimizerConfig& config, int64_t steps) {
  if (config.name != "zero_one_adam") return config.warmup_steps;
  StepSets sets(config);
  int64_t changes = 0;
  for (int64_t step = 1; step <= std::min(steps, sets.last_variance()); ++step) changes += sets.at(step).variance;
  return changes;
}

}  // namespace godwit
