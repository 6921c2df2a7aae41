// Dropouts: applies the dropouts of a model in one forward pass.
#pragma once
#include <optional>

#include "autograd/ops/attention/attention.h"
#include "nn/dropout.h"

namespace godwit {

// The dropouts of a model. Each call passes its site, an index that is unique within the model. Copies may outlive the
// DropoutContext.
class Dropouts {
 public:
  explicit Dropouts(const DropoutContext* run) {  // null: no dropout
    if (run) run_ = *run;
  }
  // Drops elements of x with probability p.
  Var operator()(const Var& x, double p, int64_t site) const { return run_ ? ops::dropout(x, p, run_->key(site)) : x; }
  AttentionOptions attention(double p, int64_t site) const {  // options that drop attention probabilities
    return run_ ? AttentionOptions{.dropout = p, .key = run_->key(site)} : AttentionOptions{};
  }

 private:
  std::optional<DropoutContext> run_;
};

}  // namespace godwit
