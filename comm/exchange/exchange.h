// Exchange: replaces a bucket's gradient by its mean over all ranks. The mean is exact or compressed. Optimizers that
// use the gradient work with every exchange.
#pragma once
#include <string>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

// Averages the gradients of buckets.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Collective. Replaces bucket.grad by its mean, bit-identical on all ranks. Under zero2 and zero3, only the rank's
  // shard contains the mean; the rest is unspecified. Under hybrid, the bucket is the rank's shard, and the ranks of
  // `comm` are those with the same shard. `step` counts from 1.
  virtual void mean(Bucket& bucket, Communicator& comm, int64_t step) = 0;
  virtual std::vector<StateTensor> state() const { return {}; }  // state for checkpoints
  // Numbers that checkpoints contain in addition to state().
  virtual std::vector<double> counters() const { return {}; }
  virtual void restore(const std::vector<double>& /*counters*/) {}  // called after state() has been restored
  // Collective: one line that summarizes all ranks at the end of the run, or "" if there is nothing to report.
  virtual std::string summary(Group& /*world*/) const { return {}; }
};

}  // namespace godwit
