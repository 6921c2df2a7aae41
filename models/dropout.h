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
  explicit Dropouts(const DropoutContext* dropout) {  // null: no dropout
    if (dropout) dropout_ = *dropout;
  }
  // Drops elements of x with probability p.
  Var operator()(const Var& x, double p, int64_t site) const {
    return dropout_ ? ops::dropout(x, p, dropout_->key(site)) : x;
  }
  AttentionOptions attention(double p, int64_t site) const {  // options that drop attention probabilities
    return dropout_ ? AttentionOptions{.dropout = p, .key = dropout_->key(site)} : AttentionOptions{};
  }

 private:
  std::optional<DropoutContext> dropout_;
};

}  // namespace godwit
