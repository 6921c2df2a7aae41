// VarianceFreeze: the end of the warm-up of 1-bit Adam and 1-bit LAMB, and later refreshes of the second moment.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/group.h"
#include "comm/state_tensor.h"
#include "optim/late_variance.h"

namespace godwit {

// The rule for the end of a warm-up; see VarianceFreeze.
enum class WarmupEnd { automatic, fixed };
inline std::vector<std::string> choices_of(WarmupEnd) { return {"auto", "fixed"}; }

// Determines when 1-bit Adam and 1-bit LAMB freeze the second moment v, and refreshes v later.
//
// End of the warm-up with WarmupEnd::automatic: the warm-up ends when v̂, the bias-corrected v, has settled, but at the
// latest after `limit` steps. v̂ has settled in step t, a multiple of Δ/10, if
//   0.96 ≤ ‖v̂_t‖₁/‖v̂_(t−Δ)‖₁ ≤ 1/0.96,  Δ = 1/(1−β2),
// holds for tensors that together have 99 % of all values. (The 1-bit Adam paper tests the whole v, without bias
// correction and only for growth.) ‖v‖₁ is the moving average of ‖ĝ‖², so no pass over v is needed. All ranks have the
// same mean gradient ĝ and make the same decision. With sharding hybrid, the ranks of a node add the numbers of values
// of their shards at every test.
//
// Refreshes: in steps T_w + h·(2ʲ − 1), j = 1, 2, …, h = max(⌊T_w/4⌋, 1), the mean gradient ĝ is also exchanged
// uncompressed. Where v = 0, because the first gradient came after the warm-up, LateVariance provides v̂. The other
// values of a tensor are multiplied by one factor. With r = ‖ĝ‖²/‖v̂‖₁ over these values, the factor is
//   r              if r > 4, because the gradients have outgrown v;  otherwise
//   1              with Refresh::outgrown
//   1 − w + w·r    with Refresh::follow, so that ‖v̂‖₁ follows Adam's, up or down
// w is the weight that Adam's v̂ gives to the steps since the last refresh. It is at most 0.5, so that the gradient of
// one batch cannot replace v̂.
class VarianceFreeze {
 public:
  enum class Refresh { off, outgrown, follow };  // rule for the factor
  // `limit`: longest warm-up, in steps. `refresh`: rule after the warm-up. `name`: for event(). `shards`:
  // Communicator::shards.
  VarianceFreeze(const char* name, WarmupEnd end, int64_t limit, double beta2, Refresh refresh, const Buckets& buckets,
                 std::shared_ptr<Group> shards = nullptr);

  // Whether `step` belongs to the warm-up. The decision is made at the first call for a step, after all buckets of the
  // last step. Collective over `shards`.
  bool warming_up(int64_t step);
  int64_t frozen_at() const { return frozen_at_; }  // T_w; 0 during the warm-up
  bool refreshes(int64_t step) const;               // whether v is refreshed in `step`
  // Must be called for each bucket in each step of the warm-up, with the mean gradient in bucket.grad.
  void measure(const Bucket& bucket);
  // Returns the factor on v for each slot. Must be called for each bucket in a refresh, with the result of
  // LateVariance::exchange(), the old v and LateVariance::correction().
  std::vector<double> growth(const Bucket& bucket, const Tensor& g, const Tensor& v, double late_correction);
  std::vector<double> counters() const;               // all numbers of this object, for checkpoints
  // Sets the numbers of a checkpoint. `v`: the restored second moments, one tensor per bucket. If the numbers belong to
  // other shards, the norms are computed from v, and the test for the end of the warm-up begins anew. Ranks with the
  // same shard must pass the same numbers.
  void restore(const std::vector<double>& counters, const std::vector<StateTensor>& v);
  // One line with the reason after the end of the warm-up. Empty after other steps.
  std::string event(int64_t step) const { return step == event_step_ ? event_ : std::string(); }

 private:
  int64_t refresh_interval() const { return std::max<int64_t>(frozen_at_ / 4, 1); }
  double held(int64_t steps) const { return 1 - std::pow(beta2_, static_cast<double>(steps)); }
  double refresh_weight() const;
  void measure_norms(const std::vector<StateTensor>& v);
  bool settled();
  std::string unsettled() const;  // collective over shards_

  std::string name_;
  WarmupEnd end_;
  int64_t limit_;
  double beta2_;
  Refresh refresh_;
  std::vector<std::string> names_;             // names of all slots
  double slots_hash_ = 0;                      // 53 bits; with sharding hybrid, ranks have slots of their shards
  std::vector<Segment> ranges_;                // values of each slot within its bucket
  std::vector<size_t> first_slot_;             // first slot of each bucket
  std::vector<double> norms_;                  // ‖v‖₁ of each slot
  std::deque<std::vector<double>> snapshots_;  // ‖v̂‖₁ of each slot, at multiples of Δ/10, for the last Δ steps
  std::vector<double> changes_;                // ‖v̂_t‖₁/‖v̂_(t−Δ)‖₁ at the last test; empty before the first test
  int64_t step_ = 0, frozen_at_ = 0, event_step_ = 0;
  std::string event_;
  std::shared_ptr<Group> shards_;  // null if this rank has all parameters
};

// Refreshes v = correction·v̂ of a bucket as described at VarianceFreeze. `mean`: result of late.exchange().
void refresh_variance(VarianceFreeze& freeze, const LateVariance& late, const Bucket& bucket, const Tensor& v,
                      const Tensor& mean, double correction);
// v ← correction·g² where v is 0, otherwise v ← factor·v. `factors`: one per slot; empty: all 1.
void fill_variance(const Bucket& bucket, const Tensor& v, const Tensor& g, double correction,
                   const std::vector<double>& factors = {});

}  // namespace godwit
