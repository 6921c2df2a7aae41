// SyncSchedule: the communication steps of 0/1 Adam (0/1 Adam paper, section 6, "Policy for T_v and T_u").
#pragma once
#include <cstdint>

#include "optim/zero_one_adam.h"

namespace godwit {

// T_u, the steps after which the replicas are synchronized: t₀ = 0, t_{j+1} = t_j + gap(t_j). With T_w = warmup_steps,
// H = max_interval and K = doubling_steps (T_w if doubling_steps is 0), gap(t) is
//   1                      for t <= T_w, if T_w is not 0; later it depends on the option intervals:
//   min(H, 2ⁱ)             "learning_rate", once the learning rate has fallen to 1/2ⁱ of its value at T_w
//   min(H, 2^⌊(t−T_w)/K⌋)  "doubling"
//   H                      "fixed"
// T_v, the steps in which the variance v changes: k₀ = 1, k_{j+1} = k_j + 2^⌊j/kappa⌋, or k_j + variance_interval if
// variance_interval is not 0. T_v ends after freeze_step or, if freeze_step is 0, with the first gap above 1. v changes
// only in the first step of a sync interval, so that one v is used for the whole interval.
// After T, the last step of T_v, values with v = 0 are refreshed in the first step of each interval that contains a
// step T + h·(2ʲ − 1), j = 1, 2, …, with h = max(⌊T/16⌋, 1).
class SyncSchedule {
 public:
  explicit SyncSchedule(const ZeroOneAdam::Options& options);  // throws if T_u and T_v contradict each other

  struct Step {              // sets to which a step belongs
    bool sync, variance;     // whether the step is in T_u, and in T_v
    bool refresh;            // whether v = 0 is refreshed
    int64_t since_variance;  // steps since the last element of T_v before this step, or since step 0
  };
  Step at(int64_t step);  // must be called in ascending order of steps

  int64_t last_variance() const { return last_variance_; }  // the last step of T_v

 private:
  int64_t gap(int64_t step) const;
  void advance(int64_t step);  // moves to the sync interval and to the element of T_v for `step`

  ZeroOneAdam::Options options_;
  int64_t last_variance_;
  int64_t last_sync_ = 0, next_sync_;  // last_sync_ < step <= next_sync_
  // For T_v, ignoring its end: before_variance_ < step <= next_variance_.
  int64_t before_variance_ = 0, next_variance_ = 1, variance_index_ = 0;
};

// Number of changes of the second moment in a run of `steps` steps.
int64_t variance_changes(const ZeroOneAdam::Options& options, int64_t steps);
// Number of steps of T_u in a run of `steps` steps.
int64_t synchronizations(const ZeroOneAdam::Options& options, int64_t steps);

}  // namespace godwit
