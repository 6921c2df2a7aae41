// Calibration of Birder: a factor on m/b that makes the mean of the nodes' ratios as long as the ratio of their mean
// gradient.
#pragma once
#include <vector>

#include "comm/group.h"
#include "comm/parallel/bucket.h"
#include "optim/state.h"

namespace godwit::birder {

// Node i divides its mᵢ by its own bᵢ, the mean of |gᵢ|, which also holds the noise of its own gradients. The mean
// gradient ḡ has less noise, so the mean of mᵢ/bᵢ over n nodes is up to √n times shorter than m̄/b̄. The calibration
// multiplies the ratio of node i by
//   κᵢ = Σ|gᵢ|/Σ|ḡ|, one factor per parameter tensor, between 1/√n and √n.
// The sums run over a random sample of the tensor's values, which is the same on all nodes: `share` of them, at least
// 64. Their mean gradient is exchanged in float32 in steps 1, 1 + K, 1 + 2K, …. Both sums are moving averages over
// these steps. Not in the paper.
class Calibration {
 public:
  // interval: K. nodes: n. `ranges`: of each bucket, the values whose ratios this rank computes.
  Calibration(int64_t interval, double share, int nodes, uint64_t seed, const Buckets& buckets,
              const std::vector<Segment>& ranges);

  // Collective. Updates κ if it is due in `step`. `gradient`: gᵢ on the bucket's range. `nodes`: the group over which
  // gᵢ is averaged; `within`: the ranks that have the other ranges of gᵢ, or null.
  void update(const Bucket& bucket, const Tensor& gradient, Group& nodes, Group* within, int64_t step);
  // κ of each value of the bucket's range.
  const Tensor& factors(const Bucket& bucket);
  // "calibration_own", "calibration_mean": Σ|gᵢ| and Σ|ḡ|, one value per parameter, at its first element.
  std::vector<StateTensor> state() const;

 private:
  struct BucketState {
    Segment range;
    std::vector<StateTensor> own, mean;  // of all slots
    Tensor factors;
    bool filled = false;  // factors follow from own and mean
  };
  void fill(const Bucket& bucket, BucketState& state) const;

  int64_t interval_;
  double share_, limit_;  // limit_: √n
  uint64_t seed_;
  std::vector<BucketState> states_;
};

}  // namespace godwit::birder
