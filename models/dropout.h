// Dropout of a model in one forward pass.
#pragma once
#include "autograd/ops/attention/attention.h"
#include "autograd/ops/dropout.h"

namespace godwit {

// Keys the dropout masks of one forward pass in training. Without it, nothing is dropped.
struct DropoutContext {
  uint64_t seed;        // of the masks
  uint32_t step;        // global number of the micro-batch: different in every pass, the same after a resume
  uint32_t rank;        // rank of the worker; ranks draw different masks
  Tensor counter = {};  // replaces `step`: see DropoutKey
};

// The dropouts of a model. Each call names its site, an index that is unique within the model.
class Dropouts {
 public:
  explicit Dropouts(const DropoutContext* run) : run_(run) {}  // null: nothing is dropped
  // Drops elements of x with probability p.
  Var operator()(const Var& x, double p, int64_t site) const { return run_ ? ops::dropout(x, p, key(site)) : x; }
  AttentionOptions attention(double p, int64_t site) const {  // options that drop attention probabilities
    return run_ ? AttentionOptions{.dropout = p, .key = key(site)} : AttentionOptions{};
  }

 private:
  DropoutKey key(int64_t site) const {
    return {run_->seed, run_->step, static_cast<uint32_t>(site), run_->rank, run_->counter};
  }

  const DropoutContext* run_;
};

}  // namespace godwit
