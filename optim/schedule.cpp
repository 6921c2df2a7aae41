#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/check.h"
#include "engine/did_you_mean.h"

namespace godwit {
namespace {

void check_milestones(const std::vector<double>& milestones) {
  check(!milestones.empty(), "schedule multi_step: needs milestones, the epochs at which lr falls");
  double previous = 0;
  for (const double epoch : milestones) {
    check(std::isfinite(epoch) && epoch > previous, "schedule multi_step: milestones must increase from above 0, but ",
          epoch, " follows ", previous);
    previous = epoch;
  }
}

int64_t warmup_steps(const ScheduleConfig& config, int64_t steps_per_epoch, int64_t total_steps) {
  check(std::isfinite(config.warmup_epochs) && config.warmup_epochs >= 0,
        "schedule: warmup_epochs must be finite and not negative, not ", config.warmup_epochs);
  check(config.warmup_fraction >= 0 && config.warmup_fraction <= 1, "schedule: warmup_fraction must be in [0, 1], not ",
        config.warmup_fraction);
  check(config.warmup_steps >= 0, "schedule: warmup_steps must not be negative, it is ", config.warmup_steps);
  check((config.warmup_epochs > 0) + (config.warmup_fraction > 0) + (config.warmup_steps > 0) <= 1,
        "schedule: warmup_epochs ", config.warmup_epochs, ", warmup_fraction ", config.warmup_fraction,
        " and warmup_steps ", config.warmup_steps, ": at most one of them may be above 0");
  const double steps = config.warmup_steps > 0 ? static_cast<double>(config.warmup_steps)
                                               : std::round(config.warmup_epochs * static_cast<double>(steps_per_epoch) +
                                                            config.warmup_fraction * static_cast<double>(total_steps));
  check(steps <= static_cast<double>(total_steps), "schedule: a warm-up of ",
        config.warmup_epochs > 0 ? detail::concat(config.warmup_epochs, " epochs (", steps, " steps)")
                                 : detail::concat(steps, " steps"),
        " is longer than the run of ", total_steps, " steps");
  return static_cast<int64_t>(steps);
}

}  // namespace

std::vector<std::string> schedule_names() { return {"constant", "multi_step", "linear", "cosine", "polynomial"}; }

Schedule::Schedule(const ScheduleConfig& config, double base_lr, int64_t steps_per_epoch, int64_t total_steps)
    : config_(config), base_lr_(base_lr), steps_per_epoch_(steps_per_epoch), total_steps_(total_steps) {
  const std::vector<std::string> names = schedule_names();
  check(std::find(names.begin(), names.end(), config.name) != names.end(), "schedule '", config.name, "' is unknown",
        suggestion(config.name, names));
  check(std::isfinite(base_lr) && base_lr >= 0, "schedule: lr must be finite and not negative, not ", base_lr);
  check(steps_per_epoch >= 1 && total_steps >= 1, "schedule: needs at least one step per epoch and in all, not ",
        steps_per_epoch, " and ", total_steps);
  warmup_steps_ = warmup_steps(config, steps_per_epoch, total_steps);
  check(std::isfinite(config.gamma) && config.gamma > 0, "schedule: gamma must be positive, not ", config.gamma);
  check(std::isfinite(config.power) && config.power > 0, "schedule: power must be positive, not ", config.power);
  check(config.final_fraction >= 0 && config.final_fraction <= 1, "schedule: final_fraction must be in [0, 1], not ",
        config.final_fraction);
  if (config.name == "multi_step") check_milestones(config.milestones);
}

double Schedule::lr(int64_t step) const {
  check(step >= 1, "schedule: steps count from 1, not ", step);
  if (step < warmup_steps_) return base_lr_ * static_cast<double>(step) / static_cast<double>(warmup_steps_);
  if (config_.name == "constant") return base_lr_;
  step = std::min(step, total_steps_);
  if (config_.name == "multi_step") {
    const double epochs_done = static_cast<double>(step - 1) / static_cast<double>(steps_per_epoch_);
    const auto passed = std::upper_bound(config_.milestones.begin(), config_.milestones.end(), epochs_done);
    return base_lr_ * std::pow(config_.gamma, passed - config_.milestones.begin());
  }
  // From the full lr, at the last warm-up step or the first step of the run, to the step after the last one.
  const int64_t start = std::max<int64_t>(warmup_steps_, 1), length = total_steps_ + 1 - start;
  const double done = static_cast<double>(step - start) / static_cast<double>(length);
  const double left = config_.name == "linear"   ? 1 - done
                      : config_.name == "cosine" ? (1 + std::cos(std::numbers::pi * done)) / 2
                                                 : std::pow(1 - done, config_.power);
  return base_lr_ * (config_.final_fraction + (1 - config_.final_fraction) * left);
}

}  // namespace godwit
