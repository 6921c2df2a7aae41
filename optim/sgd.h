// SGD without momentum, with momentum, and with Nesterov momentum, as in PyTorch.
#pragma once
#include "engine/inline.h"
#include "optim/method.h"

namespace godwit {

template <class T>
struct SgdUpdate {
  T lr, decay;
  GODWIT_INLINE void operator()(int64_t, T& x, T g) const { x = x - lr * (g + decay * x); }
};

template <class T>
struct MomentumUpdate {
  T lr, decay, momentum;
  bool nesterov;
  GODWIT_INLINE void operator()(int64_t, T& x, T& v, T gradient) const {
    const T g = gradient + decay * x;
    v = momentum * v + g;
    x = x - lr * (nesterov ? g + momentum * v : v);
  }
};

// For the mean gradient ĝ:  x ← x − α(ĝ + λx). Types: float32 or float64.
class Sgd : public Optimizer {
 public:
  struct Options {
    double lr = 0.1;
    double weight_decay = 5e-4;  // L2 regularization
    bool decay_norm_and_bias = true;
    void describe(OptionList& list);
  };
  Sgd(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StateTensor> state() const override;  // "momentum" for Sgdm

 protected:
  Options options_;                    // options of the constructor
  std::vector<StateTensor> momentum_;  // one per bucket; empty without momentum
  double decay_rate_ = 0;              // decay rate of the momentum
  bool nesterov_ = false;              // Nesterov momentum
};

// v ← μv + ĝ + λx;  x ← x − αv, or x ← x − α(ĝ + λx + μv) with Nesterov momentum.
class Sgdm : public Sgd {
 public:
  struct Options {
    double lr = 0.1;
    double weight_decay = 5e-4;  // L2 regularization
    bool decay_norm_and_bias = true;
    double momentum = 0.9;  // μ
    bool nesterov = false;  // Nesterov momentum
    void describe(OptionList& list);
    void check() const;
  };
  Sgdm(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
};

}  // namespace godwit
