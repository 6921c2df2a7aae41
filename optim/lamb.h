// LAMB (You et al. 2020): Adam with a trust ratio per parameter.
#pragma once
#include "optim/factory.h"

namespace godwit {

// On the mean gradient ĝ:  m ← β1·m + (1−β1)ĝ;  v ← β2·v + (1−β2)ĝ²;  for each parameter
//   r = m̂/(√v̂ + ε) + λx;  c = ‖x‖/‖r‖ clamped to [min_coeff, max_coeff], 1 if either norm is 0;  x ← x − α·c·r.
// bias_correction applies Adam's bias correction to m̂ and v̂. float32 or float64. Norms are of whole parameters, so a
// rank must own all of a parameter or none of it.
class Lamb : public Optimizer {
 public:
  Lamb(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StatePart> state() const override;  // "m", "v"

  // c of the bucket's parameters in the last step, by slot; 1 for parameters that this rank does not own.
  const std::vector<double>& coefficients(const Bucket& bucket) const;

 private:
  template <class T, class Where>
  void apply_on(Where device, Bucket& bucket, const StepInfo& step);

  OptimizerConfig config_;
  std::vector<StatePart> m_, v_;
  std::vector<std::vector<double>> coefficients_;
};

}  // namespace godwit
