// Adam with L2 regularization, AdamW with decoupled weight decay (both bias-corrected as in PyTorch), and BERT's Adam.
#pragma once
#include "optim/factory.h"

namespace godwit {

// On the mean gradient ĝ (adam: ĝ + λx):  m ← β1 m + (1−β1)ĝ;  v ← β2 v + (1−β2)ĝ²;
// x ← x − α/(1−β1ᵗ) · m/(√v/√(1−β2ᵗ) + ε); adamw first sets x ← (1−αλ)x.
// bert_adam is adamw without bias correction, as BERT was trained: x ← (1−αλ)x − α·m/(√v + ε). float32 or float64.
class Adam : public Optimizer {
 public:
  Adam(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StatePart> state() const override;  // "m", "v"

 private:
  OptimizerConfig config_;
  std::vector<StatePart> m_, v_;
};

}  // namespace godwit
