// Learning-rate schedules.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/options.h"

namespace godwit {

// Name and options of a schedule.
struct ScheduleConfig {
  std::string name = "constant";  // constant, multi_step, linear, cosine, polynomial, exponential
  // Length of the warm-up, which precedes the schedule. At most one of the next three fields may be nonzero.
  double warmup_epochs = 0;
  double warmup_fraction = 0;  // fraction of all steps
  int64_t warmup_steps = 0;    // number of steps
  // In step t of a warm-up of w steps, the learning rate is lr·(warmup_start + (1 − warmup_start)·(t/w)^warmup_power).
  double warmup_power = 1;           // 2 for LAMB and 1-bit LAMB on BERT
  double warmup_start = 0;           // fraction of lr
  std::vector<double> milestones{};  // multi_step: epochs at which lr is multiplied by gamma
  double gamma = 0.1;                // factor of multi_step
  double power = 1;                  // power of polynomial
  double decay_factor = 0.99;        // exponential: factor on lr every decay_steps steps
  int64_t decay_steps = 520;         // exponential: counted from the end of the warm-up (0/1 Adam paper: BERT)
  // linear, cosine, polynomial: final lr as a fraction of lr. This rate is reached one step after the last step, as in
  // PyTorch and HuggingFace, so the last step has a learning rate above 0.
  double final_fraction = 0;

  // Adds the options. Options that the schedule `name` does not read are marked as inapplicable.
  void describe(OptionList& list);
  void check() const;  // throws if milestones are not in ascending order
};

std::vector<std::string> schedule_names();  // names for ScheduleConfig::name

// The learning rate of each step. Throws if a value is out of range, or if the configuration does not fit the run
// (milestones that do not increase, warm-up longer than the run).
class Schedule {
 public:
  // base_lr: the full learning rate.
  Schedule(const ScheduleConfig& config, double base_lr, int64_t steps_per_epoch, int64_t total_steps);
  double lr(int64_t step) const;  // step = 1 … total_steps; constant for later steps

 private:
  double warmup_lr(int64_t step) const;  // learning rate of a step before the last one of the warm-up

  ScheduleConfig config_;
  double base_lr_;
  int64_t steps_per_epoch_, total_steps_, warmup_steps_;
};

}  // namespace godwit
