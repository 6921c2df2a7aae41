// SGD without momentum, with momentum, and with Nesterov momentum, as in PyTorch.
#pragma once
#include "optim/factory.h"

namespace godwit {

// On the mean gradient ĝ:  g = ĝ + λx;  sgdm: v ← μv + g, then g = g + μv (Nesterov) or g = v;  x ← x − αg. momentum
// and nesterov are used only if config.name is "sgdm". float32 or float64.
class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StatePart> state() const override;  // "momentum"

 private:
  OptimizerConfig config_;
  std::vector<StatePart> momentum_;  // one per bucket; none for plain SGD
};

}  // namespace godwit
