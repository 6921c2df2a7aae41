// 1-bit Adam (Tang et al. 2021): Adam for a warm-up, then a frozen variance and momentum in one bit per parameter.
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/adam.h"

namespace godwit {

// Steps up to T_w = warmup_steps: Adam on the dense mean of the gradients, with decoupled weight decay. Then v stays,
// and
//   mᵢ = β1·m + (1−β1)·gᵢ from the common m;  m ← ErrorFeedbackAllReduce(mᵢ);  x ← (1−αλ)x − α·m/(√v + ε).
// v = 0 then means that a parameter never received a gradient: m is set to 0 there, and only weight decay moves it. With
// keep_local_momentum a rank continues from its own mᵢ. bias_correction divides m and v as Adam does, v always by
// 1 − β2^T_w. float32.
class OneBitAdam : public Optimizer {
 public:
  OneBitAdam(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm);
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StatePart> state() const override;  // "m", "v", "e", "server_e"

 private:
  OptimizerConfig config_;
  Adam adam_;                     // of the warm-up
  std::vector<StatePart> m_, v_;  // its
  ErrorFeedbackAllReduce all_reduce_;
  bool compressing_ = false;
};

}  // namespace godwit
