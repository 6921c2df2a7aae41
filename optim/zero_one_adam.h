// 0/1 Adam (Lu et al. 2023, Algorithm 1, with the two changes in docs/methods/one_bit.md): 1-bit momentum from the
// first step, and local steps.
#pragma once
#include <utility>

#include "comm/exchange/error_feedback_all_reduce.h"
#include "optim/late_variance.h"
#include "optim/one_bit_options.h"

namespace godwit {

class SyncSchedule;

// Step t on rank i, with the sets T_u and T_v of optim/sync_schedule.h:
//   t in T_v:  v ← β2·v + (1−β2)ĝ²,  ĝ = mean of gᵢ, uncompressed
//   every t:   mᵢ ← β1·mᵢ + (1−β1)·gᵢ;  xᵢ ← (1−αλ)xᵢ − α·mᵢ/√(v+ε);  uᵢ ← uᵢ + α·mᵢ
//   t in T_u:  u = ErrorFeedbackAllReduce(uᵢ);  m ← u/Σα;  x ← x'·Π(1−αλ) − u/√(v+ε);  uᵢ ← 0
// Σ and Π run over the steps since the last synchronization. After that synchronization, all ranks had the parameters
// x'.
// - bias_correction: other weights of v and ĝ² make v equal to Adam's v̂ in a run in which ĝ² is constant between steps
//   of T_v. The weight of one ĝ² is limited.
// - |m/√(v+ε)| is limited to update_limit.
// - Where v = 0, u and m are treated as 0, so that only weight decay changes the parameter. v is 0 for values without a
//   gradient in any step of T_v. With refresh_variance, LateVariance provides v for such values in a few steps after
//   T_v (SyncSchedule).
// Every α must be positive. Between synchronizations, the replicas differ. Type: float32.
class ZeroOneAdam : public Optimizer {
 public:
  enum class Intervals { doubling, fixed, learning_rate };  // growth of the intervals of T_u
  friend std::vector<std::string> choices_of(Intervals) { return {"doubling", "fixed", "learning_rate"}; }
  struct Options {
    double lr = 5e-4;
    double weight_decay = 0.05;
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-16;             // added to v
    double warmup_fraction = 0.11;  // T_w as a fraction of the run; fit() converts it to warmup_steps
    int64_t warmup_steps = 0;       // T_w if not 0
    SignScale sign_scale = SignScale::l2_rms;
    bool bias_correction = true;             // bias correction of v
    bool refresh_variance = true;            // estimate v for values with v = 0, after T_v
    double update_limit = 1;                 // limit of |m/√v|; 0: no limit
    DenseWire dense_wire = DenseWire::bf16;  // type of T_v's means and of refreshes
    int64_t block_size = 4096;  // values per scale; 0: one scale per parameter; −1: one per sender
    // T_u and T_v: see optim/sync_schedule.h
    Intervals intervals = Intervals::learning_rate;  // T_u after the warm-up
    int64_t max_interval = 16;                       // H
    int64_t doubling_steps = 0;                      // K of `doubling`; 0: length of the warm-up
    int64_t kappa = 16;                              // see sync_schedule.h
    int64_t variance_interval = 0;                   // interval of T_v if not 0; 0: intervals that grow with kappa
    int64_t freeze_step = 0;  // last step of T_v; 0: T_v ends at the first T_u interval longer than one step
    // Set by fit(): the first steps with a learning rate of at most 1/2, 1/4, … of the rate at T_w.
    std::vector<int64_t> halvings = {};
    void describe(OptionList& list);
    void check() const;
    void fit(const Schedule& schedule, int64_t steps);  // OptimizerMethod::fit
  };
  ZeroOneAdam(const Options& options, const Buckets& buckets, const Communicator& comm);
  ~ZeroOneAdam() override;
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;

  bool synchronized() const override { return sync_; }
  void synchronize(Buckets& buckets, Communicator& comm) override;  // like a step in T_u
  std::vector<double> counters() const override;
  void restore(const std::vector<double>& counters) override;
  // "m", "v", "u", "e", "server_e"; also "x_sync" if an interval is above 1.
  std::vector<StateTensor> state() const override;

 private:
  void begin(const StepInfo& step);
  void refresh(Bucket& bucket, Communicator& comm);
  std::pair<double, double> variance_weights(int64_t step) const;
  void agree(Bucket& bucket, Communicator& comm);
  void apply_agreed(Bucket& bucket);

  Options options_;
  std::unique_ptr<SyncSchedule> schedule_;
  std::vector<StateTensor> m_, v_, u_, x_sync_;
  LateVariance late_;
  ErrorFeedbackAllReduce all_reduce_;

  bool sync_ = true, variance_ = false;  // whether the last step was in T_u, and in T_v
  bool refresh_ = false;                 // whether v = 0 was refreshed in the last step
  int64_t since_variance_ = 1;           // number of steps from the previous change of v to the last step
  int64_t step_ = 0;
  bool first_ = true;    // whether step_ is the first step after a synchronization
  double rate_sum_ = 0;  // Σα since the last synchronization
  double keep_ = 1;      // Π(1−αλ) since the last synchronization
};

}  // namespace godwit
