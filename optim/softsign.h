// SoftSignSGD (Birder paper, appendix B; BinSGDM paper, Algorithm 2): Birder without quantization.
#pragma once
#include <cmath>

#include "engine/inline.h"
#include "optim/method.h"

namespace godwit {

template <class T>
struct SoftSignUpdate {
  T lr, keep, beta, o, eps;  // keep = 1 − αλ, o = 1 − β
  GODWIT_INLINE void operator()(int64_t, T& x, T& m, T& b, T g) const {
    m = beta * m + o * g;
    b = beta * b + o * std::abs(g);
    x = keep * x - lr * (m / (b + eps));
  }
};

// For the mean gradient ĝ:  m ← βm + (1−β)ĝ;  b ← βb + (1−β)|ĝ|;  x ← (1−αλ)x − α·m/(b+ε). Types: float32 or float64.
class SoftSignSgd : public Optimizer {
 public:
  struct Options {
    double lr = 5e-3;  // the Birder paper's settings for ResNet-20 with a global batch of 128 (appendix B.1)
    double weight_decay = 0.05;
    bool decay_norm_and_bias = true;
    double beta = 0.95;  // decay rate of m and b
    double eps = 1e-8;
    void describe(OptionList& list);
  };
  SoftSignSgd(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StateTensor> state() const override;  // "m", "b"

 private:
  Options options_;
  std::vector<StateTensor> m_, b_;
};

}  // namespace godwit
