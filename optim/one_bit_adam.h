// 1-bit Adam (Tang et al. 2021): an Adam warm-up, then frozen variance and one bit of momentum per parameter.
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/adam.h"

namespace godwit {

// Up to step T_w = warmup_steps: Adam on the mean gradient, with decoupled weight decay. Then v is frozen, and
//   mᵢ = β1·m + (1−β1)·gᵢ from the common m;  m ← ErrorFeedbackAllReduce(mᵢ);  x ← (1−αλ)x − α·m/(√v + ε).
// v = 0 means that the parameter has never received a gradient; then m is set to 0, and only weight decay changes it.
// With keep_local_momentum a rank continues from its own mᵢ. bias_correction divides m as Adam does, and v always by 1
// − β2^T_w. float32.
class OneBitAdam : public Optimizer {
 public:
  OneBitAdam(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm);
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StatePart> state() const override;  // "m", "v", "e", "server_e"

 private:
  OptimizerConfig config_;
  Adam adam_;                     // for the warm-up
  std::vector<StatePart> m_, v_;  // of adam_
  ErrorFeedbackAllReduce all_reduce_;
  bool compressing_ = false;
};

}  // namespace godwit
