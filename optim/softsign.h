// SoftSignSGD (Birder paper, appendix B; BinSGDM paper, Algorithm 2): Birder without quantization.
#pragma once
#include "optim/factory.h"

namespace godwit {

// On the mean gradient ĝ:  m ← βm + (1−β)ĝ;  b ← βb + (1−β)|ĝ|;  x ← (1−αλ)x − α·m/(b+ε). float32 or float64.
class SoftSignSgd : public Optimizer {
 public:
  SoftSignSgd(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StatePart> state() const override;  // "m", "b"

 private:
  OptimizerConfig config_;
  std::vector<StatePart> m_, b_;
};

}  // namespace godwit
