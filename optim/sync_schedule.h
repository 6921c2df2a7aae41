// The steps at which 0/1 Adam communicates (0/1 Adam paper, section 6, "Policy for T_v and T_u").
#pragma once
#include <cstdint>

#include "optim/factory.h"

namespace godwit {

// T_u, after whose steps the replicas agree. From t₀ = 0 on, t_{j+1} = t_j + gap(t_j), where gap(t) is 1 for t <= T_w
// (warmup_steps), else, with intervals "doubling", min(H, 2^⌊(t−T_w)/K⌋), with "fixed", H; H = max_interval,
// K = doubling_steps, or T_w when that is 0.
// T_v, at which the variance changes. k₀ = 1, k_{j+1} = k_j + 2^⌊j/kappa⌋, or k_j + variance_interval when that is not
// 0; up to freeze_step, or, when that is 0, as long as all gaps were 1. It may change only at the first step of a sync
// interval, so that one v serves the whole interval.
class StepSets {
 public:
  explicit StepSets(const OptimizerConfig& config);  // throws when T_u and T_v contradict each other

  struct Step {
    bool sync, variance;  // in T_u, in T_v
  };
  Step at(int64_t step);  // in ascending order of steps

  int64_t last_variance() const { return last_variance_; }  // no step of T_v comes after it

 private:
  int64_t gap(int64_t step) const;
  void advance(int64_t step);  // to the interval and the element of T_v that `step` may belong to

  OptimizerConfig config_;
  int64_t last_variance_;
  int64_t last_sync_ = 0, next_sync_;               // last_sync_ < step <= next_sync_
  int64_t next_variance_ = 1, variance_index_ = 0;  // of T_v, without its end
};

// How often one_bit_adam or zero_one_adam, fitted to a run of so many steps, changes its second moment before that is
// frozen. Without bias correction it then holds 1 − β2^that of a constant g², and steps are longer than Adam's for good.
int64_t variance_changes(const OptimizerConfig& config, int64_t steps);

}  // namespace godwit
