// Adam with L2 regularization, AdamW with decoupled weight decay (both bias-corrected as in PyTorch), and BERT's Adam.
#pragma once
#include "optim/method.h"

namespace godwit {

// Adds the options beta1, beta2 and eps.
template <class Options>
void describe_moments(Options& o, OptionList& list, const std::string& eps_help = "added to the denominator") {
  list.add("beta1", o.beta1, "decay rate of the mean of gradients", kDecayRate);
  list.add("beta2", o.beta2, "decay rate of the mean of squared gradients", kDecayRate);
  list.add("eps", o.eps, eps_help, kPositiveFloat);
}

// On the mean gradient ĝ (adam: ĝ + λx):  m ← β1 m + (1−β1)ĝ;  v ← β2 v + (1−β2)ĝ²;
// x ← x − α/(1−β1ᵗ) · m/(√v/√(1−β2ᵗ) + ε); adamw first sets x ← (1−αλ)x.
// bert_adam is adamw without bias correction, as BERT was trained: x ← (1−αλ)x − α·m/(√v + ε). float32 or float64.
class Adam : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3;         // PyTorch's default
    double weight_decay = 0;  // L2
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    void describe(OptionList& list);
  };
  Adam(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StateTensor> state() const override;  // "m", "v"

 protected:
  // `decoupled`: weight decay as in adamw; `corrected`: bias correction.
  Adam(const Options& options, bool decoupled, bool corrected, const Buckets& buckets,
       std::unique_ptr<Exchange> exchange);

 private:
  Options options_;
  bool decoupled_, corrected_;  // weight decay; bias correction
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
