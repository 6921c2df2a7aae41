// 1-bit Adam (Tang et al. 2021): an Adam warm-up, then frozen variance and one bit of momentum per parameter.
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/late_variance.h"
#include "optim/one_bit_options.h"
#include "optim/variance_freeze.h"

namespace godwit {

// Steps 1 … T_w are the warm-up: Adam on the mean gradient, with decoupled weight decay. In later steps, v is frozen:
//   mᵢ = β1·m + (1−β1)·gᵢ;  m ← ErrorFeedbackAllReduce(mᵢ);  x ← (1−αλ)x − α·m/(√v + ε).
// - bias_correction divides m by 1 − β1ᵗ and v by 1 − β2^T_w.
// - |m/(√v + ε)| is limited to update_limit.
// - Where v = 0, m is set to 0, so that only weight decay changes the parameter. v is 0 for values without a gradient
//   in the warm-up, until a refresh.
// - With keep_local_momentum, mᵢ replaces m in the first formula.
// VarianceFreeze determines T_w, which is at most warmup_steps, and the steps that refresh v. LateVariance gives values
// with v = 0 a second moment. Type: float32.
class OneBitAdam : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3;
    double weight_decay = 0.05;
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double warmup_fraction = 0.15;  // T_w as a fraction of the run; fit() converts it to warmup_steps
    int64_t warmup_steps = 0;       // T_w if not 0
    SignScale sign_scale = SignScale::l2_rms;
    int64_t block_size = 4096;         // values per scale; 0: one scale per parameter; −1: one per sender
    WarmupEnd warmup = WarmupEnd::automatic;  // see VarianceFreeze
    bool bias_correction = true;             // bias correction of both moments
    bool refresh_variance = true;            // see VarianceFreeze
    double update_limit = 1;                 // limit of |m̂/√v̂| after the warm-up; 0: no limit
    DenseWire dense_wire = DenseWire::bf16;  // type in the warm-up and in refreshes
    bool keep_local_momentum = false;  // continue from this rank's momentum
    void describe(OptionList& list);
    void fit(const Schedule& schedule, int64_t steps);  // OptimizerMethod::fit
  };
  OneBitAdam(const Options& options, const Buckets& buckets, const Communicator& comm);
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::string event(int64_t step) const override { return freeze_.event(step); }
  std::vector<double> counters() const override;
  void restore(const std::vector<double>& counters) override { freeze_.restore(late_.restore(counters), v_); }
  std::vector<StateTensor> state() const override;  // "m", "v", "e", "server_e"

 private:
  double variance_correction() const;

  Options options_;
  VarianceFreeze freeze_;
  LateVariance late_;
  std::unique_ptr<Optimizer> adam_;  // optimizer of the warm-up
  std::vector<StateTensor> m_, v_;     // state of adam_
  ErrorFeedbackAllReduce all_reduce_;
};

}  // namespace godwit
