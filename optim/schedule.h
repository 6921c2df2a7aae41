// Learning-rate schedules.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit {

struct ScheduleConfig {
  std::string name = "constant";     // constant, multi_step, linear, cosine, polynomial
  // Linear from lr/steps up to lr, before any of them; at most one of the three is not 0.
  double warmup_epochs = 0;
  double warmup_fraction = 0;  // of all steps
  long long warmup_steps = 0;
  std::vector<double> milestones{};  // multi_step: epochs at which lr is multiplied by gamma
  double gamma = 0.1;                // multi_step
  double power = 1;                  // polynomial
  // linear, cosine, polynomial: of lr, reached one step after the last, as in PyTorch and HuggingFace. So the last step
  // still has a learning rate above 0.
  double final_fraction = 0;
};

std::vector<std::string> schedule_names();

// lr of each step; throws when the configuration contradicts itself or the run (warm-up longer than the run, milestones
// that do not increase, an unknown name).
class Schedule {
 public:
  Schedule(const ScheduleConfig& config, double base_lr, int64_t steps_per_epoch, int64_t total_steps);
  double lr(int64_t step) const;  // step = 1 … total_steps; constant beyond

 private:
  ScheduleConfig config_;
  double base_lr_;
  int64_t steps_per_epoch_, total_steps_, warmup_steps_;
};

}  // namespace godwit
