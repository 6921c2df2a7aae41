// SGD without momentum, with momentum, and with Nesterov momentum, as in PyTorch.
#pragma once
#include "optim/method.h"

namespace godwit {

// On the mean gradient ĝ:  x ← x − α(ĝ + λx). float32 or float64.
class Sgd : public Optimizer {
 public:
  struct Options {
    double lr = 0.1;
    double weight_decay = 5e-4;  // L2
    bool decay_norm_and_bias = true;
    void describe(OptionList& list);
  };
  Sgd(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StateTensor> state() const override;  // "momentum" for Sgdm

 protected:
  Options options_;                    // of the constructor
  std::vector<StateTensor> momentum_;  // one per bucket; empty without momentum
  double decay_rate_ = 0;              // of the momentum
  bool nesterov_ = false;              // Nesterov momentum
};

// v ← μv + ĝ + λx;  x ← x − αv, or x ← x − α(ĝ + λx + μv) with Nesterov momentum.
class Sgdm : public Sgd {
 public:
  struct Options {
    double lr = 0.1;
    double weight_decay = 5e-4;  // L2
    bool decay_norm_and_bias = true;
    double momentum = 0.9;  // μ
    bool nesterov = false;  // Nesterov momentum
    void describe(OptionList& list);
    void check() const;
  };
  Sgdm(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
};

}  // namespace godwit
