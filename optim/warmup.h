// Code shared by one_bit_adam, zero_one_adam and one_bit_lamb: options of the warm-up and of signs, the end of the
// warm-up, uncompressed means, and texts for the user.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "comm/compress/wire/scaled_signs.h"
#include "optim/method.h"

namespace godwit {

// The type in which uncompressed gradients are sent.
enum class DenseWire { bf16, f16, f32 };
inline std::vector<std::string> choices_of(DenseWire) { return {"bf16", "f16", "f32"}; }

// Collective: x ← mean of x over the ranks. `purpose` is the prefix of the phases: "one_bit_adam/warmup".
void dense_mean(Group& world, const Tensor& x, DenseWire wire, const std::string& purpose);

// update_limit as used by a kernel: 0, which means no limit, becomes infinity.
inline float limit_of(double update_limit) {
  return update_limit > 0 ? static_cast<float>(update_limit) : std::numeric_limits<float>::infinity();
}

// The rule for the end of a warm-up; see VarianceFreeze.
enum class WarmupEnd { automatic, fixed };
inline std::vector<std::string> choices_of(WarmupEnd) { return {"auto", "fixed"}; }

// Adds the options warmup_fraction, warmup_steps, update_limit, dense_wire, sign_scale and block_size. `help`: phrase
// for the warm-up.
template <class Options>
void describe_warmup(Options& o, OptionList& list, const std::string& help) {
  list.add("warmup_fraction", o.warmup_fraction, help + ", as a fraction of the run", kFraction);
  list.add("warmup_steps", o.warmup_steps, help + ", in steps; 0: warmup_fraction of the run", kNotNegative);
  list.add("update_limit", o.update_limit,
           "limit of |m/sqrt(v)|, after the warm-up if there is one; 0: no limit, as published", kNotNegative);
  list.add("dense_wire", o.dense_wire, "type in which uncompressed gradients are sent");
  list.add("sign_scale", o.sign_scale, "scale of a block of signs: mean magnitude or root mean square");
  list.add("block_size", o.block_size, "values per scale; 0: one scale per parameter tensor; -1: one per message",
           {.min = -1});
}

// Adds the options warmup and refresh_variance.
template <class Options>
void describe_freeze(Options& o, OptionList& list) {
  list.add("warmup", o.warmup,
           "auto: the warm-up ends when the second moments have settled, at the latest after warmup_steps or "
           "warmup_fraction; fixed: the warm-up ends exactly there");
  list.add(
      "refresh_variance", o.refresh_variance,
      "after the warm-up, adapt the second moments of each tensor to its gradients in a few steps, whose gradients "
      "are also sent uncompressed");
}

// Length of the warm-up in a run of `steps` steps: `warmup_steps` if not 0, otherwise `fraction` of the run, at least
// one step. Throws if fewer than `least_after` steps remain after the warm-up. `purpose`: purpose of these steps for
// the message, such as "compress".
int64_t warmup_of_run(const std::string& name, double fraction, int64_t warmup_steps, int64_t steps,
                      int64_t least_after, const std::string& purpose);
// Throws if the warm-up is given only as a fraction.
void check_warmup_in_steps(const std::string& name, double fraction, int64_t warmup_steps);
// Throws if the warm-up is missing or given only as a fraction.
void check_warmup_given(const std::string& name, double fraction, int64_t warmup_steps);

// Determines when 1-bit Adam and 1-bit LAMB freeze the second moment v, and refreshes v later.
//
// End of the warm-up, WarmupEnd::automatic: after the first step t, a multiple of Δ/10, at which
//   0.96 ≤ ‖v̂_t‖₁/‖v̂_(t−Δ)‖₁ ≤ 1/0.96,  Δ = 1/(1−β2),
// holds for tensors with 99 % of all values, and at the latest after `limit` steps. v̂ is bias-corrected. (The 1-bit
// Adam paper tests the whole v, without bias correction and only for growth.) ‖v‖₁ is the moving average of ‖ĝ‖², so no
// pass over v is needed. All ranks have the same mean gradient ĝ and make the same decision.
//
// Refreshes: in steps T_w + h·(2ʲ − 1), j = 1, 2, …, h = max(⌊T_w/4⌋, 1), the mean gradient ĝ is also exchanged
// uncompressed. Where v = 0, because the first gradient came after the warm-up, LateVariance provides v̂. The other
// values of a tensor are multiplied by one factor. With r = ‖ĝ‖²/‖v̂‖₁ over these values, the factor is
//   r              if r > 4, because the gradients have outgrown v;  otherwise
//   1              with Refresh::outgrown
//   1 − w + w·r    with Refresh::follow, so that ‖v̂‖₁ follows Adam's, up or down
// w is the weight of the steps since the last refresh in Adam's v̂, limited to 0.5. The limit prevents the gradient of
// one batch from replacing v̂.
class VarianceFreeze {
 public:
  enum class Refresh { off, outgrown, follow };  // rule for the factor
  // `limit`: longest warm-up, in steps. `refresh`: rule after the warm-up. `name`: for event().
  VarianceFreeze(const char* name, WarmupEnd end, int64_t limit, double beta2, Refresh refresh, const Buckets& buckets);

  // Whether `step` belongs to the warm-up. The decision is made at the first call for a step, after all buckets of the
  // last step.
  bool warming_up(int64_t step);
  int64_t frozen_at() const { return frozen_at_; }  // T_w; 0 during the warm-up
  bool refreshes(int64_t step) const;               // whether v is refreshed in `step`
  // Must be called for each bucket in each step of the warm-up, with the mean gradient in bucket.grad.
  void measure(const Bucket& bucket);
  // Returns the factor on v for each slot. Must be called for each bucket in a refresh, with the result of
  // LateVariance::exchange() and the old v.
  std::vector<double> growth(const Bucket& bucket, const Tensor& g, const Tensor& v);
  // The divisor of the squares of LateVariance::exchange() in a refresh.
  double late_correction() const { return held(step_ - frozen_at_); }
  std::vector<double> counters() const;               // all numbers of this object, for checkpoints
  void restore(const std::vector<double>& counters);  // sets the numbers of a checkpoint
  // One line with the reason after the end of the warm-up. Empty after other steps.
  std::string event(int64_t step) const { return step == event_step_ ? event_ : std::string(); }

 private:
  int64_t refresh_interval() const { return std::max<int64_t>(frozen_at_ / 4, 1); }
  double held(int64_t steps) const { return 1 - std::pow(beta2_, static_cast<double>(steps)); }
  double refresh_weight() const;
  bool settled();
  std::string unsettled() const;

  std::string name_;
  WarmupEnd end_;
  int64_t limit_;
  double beta2_;
  Refresh refresh_;
  std::vector<std::string> names_;             // names of all slots
  double names_hash_ = 0;                      // 53 bits; with sharding hybrid, ranks have slots of their shards
  std::vector<int64_t> sizes_;                 // number of values of each slot
  std::vector<size_t> first_slot_;             // first slot of each bucket
  std::vector<double> norms_;                  // ‖v‖₁ of each slot
  std::deque<std::vector<double>> snapshots_;  // ‖v̂‖₁ of each slot, at multiples of Δ/10, for the last Δ steps
  std::vector<double> changes_;                // ‖v̂_t‖₁/‖v̂_(t−Δ)‖₁ at the last test; empty before the first test
  int64_t step_ = 0, frozen_at_ = 0, event_step_ = 0;
  std::string event_;
};

// Refreshes v = correction·v̂ of a bucket as described at VarianceFreeze. `mean`: result of LateVariance::exchange().
void refresh_variance(VarianceFreeze& freeze, const Bucket& bucket, const Tensor& v, const Tensor& mean,
                      double correction);
// v ← correction·g² where v is 0, otherwise v ← factor·v. `factors`: one per slot; empty: all 1.
void fill_variance(const Bucket& bucket, const Tensor& v, const Tensor& g, double correction,
                   const std::vector<double>& factors = {});

// Lines for OptimizerMethod::notices. Without bias correction, v of a constant g² stays at (1 − β2^n)·g² after n
// changes, and all later steps are longer than Adam's.
std::vector<std::string> frozen_variance_notices(const std::string& name, double beta2, int64_t changes);
std::string long_steps_hint(const std::string& name);  // text for OptimizerMethod::divergence_hint

}  // namespace godwit
