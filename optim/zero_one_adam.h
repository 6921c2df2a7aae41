// 0/1 Adam (Lu et al. 2023, Algorithm 1, with corrected line order and t'): no full-precision phase, local steps.
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/sync_schedule.h"

namespace godwit {

// Step t on rank i:
//   t in T_v:  v ← β2·v + (1−β2)·(mean of gᵢ, uncompressed)²
//   mᵢ ← β1·mᵢ + (1−β1)·gᵢ;  xᵢ ← (1−αλ)xᵢ − α·mᵢ/√(v+ε);  uᵢ ← uᵢ + α·mᵢ
//   t in T_u:  u = ErrorFeedbackAllReduce(uᵢ);  m ← u/Σα;  x ← x'·Π(1−αλ) − u/√(v+ε);  uᵢ ← 0
// Σ and Π run over the steps since the last synchronization; x' are the common parameters after it. v = 0 means that
// the parameter has never received a gradient; then u and m are 0, and only weight decay changes it. Every α must be
// positive. Between synchronizations the replicas differ. float32.
class ZeroOneAdam : public Optimizer {
 public:
  ZeroOneAdam(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm);
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;

  bool synchronised() const override { return now_.sync; }
  void synchronise(Buckets& buckets, Communicator& comm) override;  // as if the last step were in T_u
  std::vector<StatePart> state() const override;  // "m", "v", "u", "e", "server_e"; "x_sync" if an interval is above 1

 private:
  void begin(const StepInfo& step);
  void agree(Bucket& bucket, Communicator& comm);
  void apply_agreed(Bucket& bucket);

  OptimizerConfig config_;
  StepSets sets_;
  std::vector<StatePart> m_, v_, u_, x_sync_;
  ErrorFeedbackAllReduce all_reduce_;

  StepSets::Step now_{true, false};  // of the last step
  int64_t step_ = 0;
  bool first_ = true;    // step_ is the first step after a synchronization
  double rate_sum_ = 0;  // Σα since the last synchronization
  double keep_ = 1;      // Π(1−αλ) since the last synchronization
};

}  // namespace godwit
