// Adam with L2 regularization and AdamW with decoupled weight decay, both with bias correction as in PyTorch, and
// BERT's Adam without bias correction.
#pragma once
#include <cmath>

#include "engine/inline.h"
#include "optim/method.h"

namespace godwit {

template <class T>
struct MomentsUpdate {
  T beta1, o1, beta2, o2;  // o = 1 − β
  T root_correction, eps;  // √(1−β2ᵗ) or 1; ε

  // `config` has beta1, beta2 and eps.
  template <class Config>
  MomentsUpdate(const Config& config, double correction_of_root)
      : beta1(static_cast<T>(config.beta1)),
        o1(static_cast<T>(1 - config.beta1)),
        beta2(static_cast<T>(config.beta2)),
        o2(static_cast<T>(1 - config.beta2)),
        root_correction(static_cast<T>(correction_of_root)),
        eps(static_cast<T>(config.eps)) {}

  // Updates m and v. Returns √v/root_correction + ε.
  GODWIT_INLINE T operator()(T& m, T& v, T g) const {
    m = beta1 * m + o1 * g;
    v = beta2 * v + o2 * (g * g);
    return std::sqrt(v) / root_correction + eps;
  }
};

template <class T>
struct AdamUpdate {
  MomentsUpdate<T> moments;
  T step_size;  // α/(1−β1ᵗ); bert_adam: α, with root_correction 1
  T l2, keep;   // adam: λ and 1; other methods: 0 and 1 − αλ
  GODWIT_INLINE void operator()(int64_t, T& x, T& m, T& v, T g) const {
    const T root = moments(m, v, g + l2 * x);
    x = keep * x - step_size * (m / root);
  }
};

// Adds the options beta1, beta2 and eps.
template <class Options>
void describe_moments(Options& o, OptionList& list, const std::string& eps_help = "added to the denominator") {
  list.add("beta1", o.beta1, "decay rate of the mean of gradients", kDecayRate);
  list.add("beta2", o.beta2, "decay rate of the mean of squared gradients", kDecayRate);
  list.add("eps", o.eps, eps_help, kPositiveFloat);
}

// For the mean gradient ĝ:
//   m ← β1·m + (1−β1)ĝ;  v ← β2·v + (1−β2)ĝ²;  x ← x − α/(1−β1ᵗ)·m/(√v/√(1−β2ᵗ) + ε).
// - adam replaces ĝ by ĝ + λx.
// - adamw and bert_adam first set x ← (1−αλ)x.
// - bert_adam has no bias correction, as in BERT's training: x ← x − α·m/(√v + ε).
// Types: float32 or float64.
class Adam : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3;         // PyTorch's default
    double weight_decay = 0;  // L2 regularization
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    void describe(OptionList& list);
  };
  Adam(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StateTensor> state() const override;  // "m", "v"

 protected:
  // `decoupled`: weight decay as in adamw. `corrected`: bias correction.
  Adam(const Options& options, bool decoupled, bool corrected, const Buckets& buckets,
       std::unique_ptr<Exchange> exchange);

 private:
  Options options_;
  bool decoupled_, corrected_;  // decoupled weight decay; bias correction
  std::vector<StateTensor> m_, v_;
};

// Adam with decoupled weight decay.
class AdamW : public Adam {
 public:
  struct Options {
    double lr = 5e-3;  // the Birder paper's settings for ResNet-20 with a global batch of 128 (appendix B.1)
    double weight_decay = 0.05;
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    void describe(OptionList& list);
  };
  AdamW(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
};

// Adam with decoupled weight decay and no bias correction.
class BertAdam : public Adam {
 public:
  struct Options {
    double lr = 1e-4;  // settings of BERT's pre-training
    double weight_decay = 0.01;
    bool decay_norm_and_bias = false;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-6;
    void describe(OptionList& list);
  };
  BertAdam(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
};

}  // namespace godwit
