// 1-bit LAMB (Li et al. 2022): a LAMB warm-up, then one bit of momentum per parameter and scaled LAMB coefficients.
#pragma once
#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/lamb.h"
#include "optim/late_variance.h"
#include "optim/one_bit_options.h"
#include "optim/variance_freeze.h"

namespace godwit {

// A step after the warm-up for a bucket.
struct FrozenLambStep {
  one_bit::FrozenLambUpdate update;  // computes p and the ratios
  one_bit::LambDecay decay;          // of parameters with weight decay
  one_bit::LambFactor factor;        // computes f and the rates
  float *m, *change, *v_fresh;       // change: the averaged momentum, which is replaced by r
  const float* v;                    // frozen second moment
  float *x, *f;                      // parameters; f of each parameter
  const float* mean;                 // c̄ of each parameter
};
// Applies the step to a bucket's parameters. `change` is the gradient of `bucket`.
void frozen_lamb_update(Cpu device, const FrozenLambStep& a, const Bucket& bucket, const ParameterRanges& parameters);
void frozen_lamb_update(Cuda device, const FrozenLambStep& a, const Bucket& bucket, const ParameterRanges& parameters);

// Steps 1 … T_w are the warm-up: LAMB on the mean gradient, and for each parameter, with β3 = coeff_beta,
//   c̄ ← β3·c̄ + (1−β3)·c.
// In later steps, v and c̄ are frozen, and ṽ starts as v:
//   m ← ErrorFeedbackAllReduce(β1·m + (1−β1)·gᵢ);  ĝ = (m − β1·m_before)/(1−β1);  ṽ ← β2·ṽ + (1−β2)ĝ²;
//   p = m/(√v+ε);  r = p + λx;  f = max (√v+ε)/(√ṽ+ε) over the parameter;  x ← x − α·f·c̄·r.
// - bias_correction divides m, v and ṽ in p and f like Adam. c̄ is always divided by 1 − β3^T_w.
// - |p| is limited to update_limit.
// - Where v = 0, m is set to 0.
// - For a parameter with weight decay, f ← f·q + 1 − q, q = min(1, ‖p‖/‖r‖).
// - f is then clamped to [factor_min, factor_max], and to its previous value·(1 ± factor_threshold).
// VarianceFreeze determines T_w, which is at most warmup_steps, and the steps that refresh v. LateVariance gives values
// with v = 0 a second moment. Type: float32.
class OneBitLamb : public Optimizer {
 public:
  struct Options {
    double lr = 0.01;
    double weight_decay = 0.01;
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-6;
    double warmup_fraction = 0.15;  // T_w as a fraction of the run; fit() converts it to warmup_steps
    int64_t warmup_steps = 0;       // T_w if not 0
    WarmupEnd warmup = WarmupEnd::automatic;  // see VarianceFreeze
    bool bias_correction = true;             // bias correction of both moments
    bool refresh_variance = true;            // see VarianceFreeze
    double update_limit = 1;                 // limit of |m̂/√v̂| after the warm-up; 0: no limit
    DenseWire dense_wire = DenseWire::bf16;  // type in the warm-up and in refreshes
    SignScale sign_scale = SignScale::l1_mean;
    int64_t block_size = 4096;  // values per scale; 0: one scale per parameter; −1: one per sender
    double min_coeff = 0.01, max_coeff = 10;  // limits of c
    double coeff_beta = 0.9;                  // β3
    double factor_min = 0.5, factor_max = 4;  // limits of f
    double factor_threshold = 0.1;            // limit of the relative change of f per step
    void describe(OptionList& list);
    void check() const;
    void fit(const Schedule& schedule, int64_t steps);  // OptimizerMethod::fit
  };
  OneBitLamb(const Options& options, const Buckets& buckets, const Communicator& comm);
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::string event(int64_t step) const override { return freeze_.event(step); }
  std::vector<double> counters() const override;
  void restore(const std::vector<double>& counters) override { freeze_.restore(late_.restore(counters), v_); }
  // "m", "v", "v_fresh", "e", "server_e"; "coefficient" and "factor" with one value per parameter, at its first
  // element.
  std::vector<StateTensor> state() const override;

 private:
  template <class Where>
  void apply_frozen(Where device, Bucket& bucket, const StepInfo& step);
  double correction(double beta, int64_t steps) const;

  Options options_;
  VarianceFreeze freeze_;
  LateVariance late_;
  Lamb lamb_;                                 // optimizer of the warm-up
  std::vector<StateTensor> m_, v_, v_fresh_;  // m, v: state of lamb_
  std::vector<Tensor> means_, factors_;       // c̄ (state of lamb_) and f of each bucket, float32 [slots]
  std::vector<int64_t> firsts_;               // global offset of each parameter of all buckets; −1 if empty
  ErrorFeedbackAllReduce all_reduce_;
};

}  // namespace godwit
