#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/check.h"

namespace godwit {
namespace {

int64_t warmup_steps(const ScheduleConfig& config, int64_t steps_per_epoch, int64_t total_steps) {
  check((config.warmup_epochs > 0) + (config.warmup_fraction > 0) + (config.warmup_steps > 0) <= 1,
        "schedule: warmup_epochs ", config.warmup_epochs, ", warmup_fraction ", config.warmup_fraction,
        " and warmup_steps ", config.warmup_steps, ": at most one of them may be above 0");
  const double steps = config.warmup_steps > 0
                           ? static_cast<double>(config.warmup_steps)
                           : std::round(config.warmup_epochs * static_cast<double>(steps_per_epoch) +
                                        config.warmup_fraction * static_cast<double>(total_steps));
  check(steps <= static_cast<double>(total_steps), "schedule: a warm-up of ",
        config.warmup_epochs > 0 ? detail::concat(config.warmup_epochs, " epochs (", steps, " steps)")
                                 : detail::concat(steps, " steps"),
        " is longer than the run of ", total_steps, " steps; lower schedule.",
        config.warmup_epochs > 0  ? "warmup_epochs"
        : config.warmup_steps > 0 ? "warmup_steps"
                                  : "warmup_fraction",
        ", or train longer");
  return static_cast<int64_t>(steps);
}

std::vector<std::string> keys_of(const std::string& schedule) {
  std::vector<std::string> keys{"warmup_epochs", "warmup_fraction", "warmup_steps", "warmup_power", "warmup_start"};
  if (schedule == "multi_step") keys.insert(keys.end(), {"milestones", "gamma"});
  if (schedule == "polynomial") keys.push_back("power");
  if (schedule == "exponential") keys.insert(keys.end(), {"decay_factor", "decay_steps"});
  if (schedule == "linear" || schedule == "cosine" || schedule == "polynomial") keys.push_back("final_fraction");
  return keys;
}

}  // namespace

std::vector<std::string> schedule_names() {
  return {"constant", "multi_step", "linear", "cosine", "polynomial", "exponential"};
}

void ScheduleConfig::describe(OptionList& list) {
  const std::vector<std::string> keys = keys_of(name);
  std::string key_list;
  for (const std::string& key : keys) key_list += (key_list.empty() ? "" : ", ") + key;
  list.add("name", name, "schedule of the learning rate").with_choices(schedule_names());
  const auto add = [&](const std::string& key, auto& member, const std::string& help, const Range& range) {
    list.add(key, member, help, range)
        .only_if(std::find(keys.begin(), keys.end(), key) != keys.end(),
                 name + " does not read " + list.prefix + key + "; its keys are " + key_list);
  };
  add("warmup_epochs", warmup_epochs, "length of the warm-up, in epochs", kNotNegative);
  add("warmup_fraction", warmup_fraction, "length of the warm-up, as a fraction of all steps", kFraction);
  add("warmup_steps", warmup_steps, "length of the warm-up, in steps", kNotNegative);
  add("warmup_power", warmup_power, "power of the elapsed fraction of the warm-up; 1: linear", kPositive);
  add("warmup_start", warmup_start, "initial lr of the warm-up, as a fraction of lr", kFraction);
  add("milestones", milestones, "multi_step: epochs at which lr is multiplied by gamma, such as 30,60", kPositive);
  add("gamma", gamma, "multi_step: factor on lr at each milestone", kPositive);
  add("power", power, "polynomial: power of the remaining fraction of the run", kPositive);
  add("decay_factor", decay_factor, "exponential: factor on lr after each decay_steps steps", kAboveZeroToOne);
  add("decay_steps", decay_steps, "exponential: number of steps between multiplications", kAtLeastOne);
  add("final_fraction", final_fraction, "linear, cosine, polynomial: lr one step after the last, as a fraction of lr",
      kFraction);
}

void ScheduleConfig::check() const {
  for (size_t i = 1; i < milestones.size(); ++i)
    godwit::check(milestones[i] > milestones[i - 1], "schedule.milestones must ascend, but ", milestones[i],
                  " follows ", milestones[i - 1]);
}

Schedule::Schedule(const ScheduleConfig& config, double base_lr, int64_t steps_per_epoch, int64_t total_steps)
    : config_(config), base_lr_(base_lr), steps_per_epoch_(steps_per_epoch), total_steps_(total_steps) {
  OptionList options;
  options.prefix = "schedule.";
  config_.describe(options);
  for (const Option& option : options) check_value(option, option.name);
  check(std::isfinite(base_lr) && base_lr >= 0, "schedule: lr must be finite and not negative, not ", base_lr);
  check(steps_per_epoch >= 1 && total_steps >= 1, "schedule: steps_per_epoch is ", steps_per_epoch, ", total_steps is ",
        total_steps, "; expected at least 1");
  warmup_steps_ = warmup_steps(config, steps_per_epoch, total_steps);
  check(config.name != "multi_step" || !config.milestones.empty(),
        "schedule multi_step: milestones is empty; set the epochs at which lr falls");
  config.check();
}

double Schedule::warmup_lr(int64_t step) const {
  const double steps = static_cast<double>(warmup_steps_), at = static_cast<double>(step);
  // One factor at/steps is separate, so that the power is exactly 1 for warmup_power 1.
  return base_lr_ * config_.warmup_start +
         (1 - config_.warmup_start) * base_lr_ * at / steps * std::pow(at / steps, config_.warmup_power - 1);
}

double Schedule::lr(int64_t step) const {
  check(step >= 1, "schedule: steps count from 1, not ", step);
  if (step < warmup_steps_) return warmup_lr(step);
  if (config_.name == "constant") return base_lr_;
  step = std::min(step, total_steps_);
  if (config_.name == "exponential")
    return base_lr_ * std::pow(config_.decay_factor, std::floor(static_cast<double>(step - warmup_steps_) /
                                                                static_cast<double>(config_.decay_steps)));
  if (config_.name == "multi_step") {
    const double epochs_done = static_cast<double>(step - 1) / static_cast<double>(steps_per_epoch_);
    const auto passed = std::upper_bound(config_.milestones.begin(), config_.milestones.end(), epochs_done);
    return base_lr_ * std::pow(config_.gamma, passed - config_.milestones.begin());
  }
  // lr falls from its full value, at the last warm-up step or at step 1, until the step after the last one.
  const int64_t start = std::max<int64_t>(warmup_steps_, 1), length = total_steps_ + 1 - start;
  const double done = static_cast<double>(step - start) / static_cast<double>(length);
  const double left = config_.name == "linear"   ? 1 - done
                      : config_.name == "cosine" ? (1 + std::cos(std::numbers::pi * done)) / 2
                                                 : std::pow(1 - done, config_.power);
  return base_lr_ * (config_.final_fraction + (1 - config_.final_fraction) * left);
}

}  // namespace godwit
