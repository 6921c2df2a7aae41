#include "optim/adam.h"

#include <cmath>

#include "engine/update_each.h"
#include "optim/decay.h"
#include "optim/state.h"

namespace godwit {

void Adam::Options::describe(OptionList& list) {
  describe_common(*this, list, "L2 regularization");
  describe_moments(*this, list);
}

void AdamW::Options::describe(OptionList& list) {
  describe_common(*this, list);
  describe_moments(*this, list);
}

void BertAdam::Options::describe(OptionList& list) {
  describe_common(*this, list);
  describe_moments(*this, list);
}

Adam::Adam(const Options& options, bool decoupled, bool corrected, const Buckets& buckets,
           std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)),
      options_(options),
      decoupled_(decoupled),
      corrected_(corrected),
      m_(state_like(buckets, "m")),
      v_(state_like(buckets, "v")) {}

Adam::Adam(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Adam(options, false, true, buckets, std::move(exchange)) {}

AdamW::AdamW(const Options& o, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Adam({o.lr, o.weight_decay, o.decay_norm_and_bias, o.beta1, o.beta2, o.eps}, true, true, buckets,
           std::move(exchange)) {}

BertAdam::BertAdam(const Options& o, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Adam({o.lr, o.weight_decay, o.decay_norm_and_bias, o.beta1, o.beta2, o.eps}, true, false, buckets,
           std::move(exchange)) {}

void Adam::apply(Bucket& bucket, const StepInfo& step) {
  const double t = static_cast<double>(step.step), beta1 = options_.beta1, beta2 = options_.beta2;
  const double step_size = corrected_ ? step.lr / (1 - std::pow(beta1, t)) : step.lr;
  const double root_correction = corrected_ ? std::sqrt(1 - std::pow(beta2, t)) : 1;
  dispatch_real(bucket.param.dtype(), "adam", [&]<class T>() {
    const auto r = [](double value) { return static_cast<T>(value); };
    on_device(bucket.param, [&](auto device) {
      T *x = data_ptr<T>(device, bucket.param), *m = state_ptr<T>(device, m_, bucket);
      T* v = state_ptr<T>(device, v_, bucket);
      const T* g = data_ptr<T>(device, bucket.grad);
      const MomentsUpdate<T> moments(options_, root_correction);
      const auto update = [&](double decay) {
        return decoupled_ ? AdamUpdate<T>{moments, r(step_size), 0, r(1 - step.lr * decay)}
                          : AdamUpdate<T>{moments, r(step_size), r(decay), T{1}};
      };
      update_by_decay(device, "adam", bucket, options_.weight_decay, options_.decay_norm_and_bias, update, x, m, v, g);
    });
  });
}

std::vector<StateTensor> Adam::state() const { return concat(m_, v_); }

const OptimizerMethod& adam_method() {
  static const OptimizerMethod method{
      .name = "adam",
      .help = "Adam with L2 regularization, as in PyTorch",
      .paper = "Kingma and Ba, Adam: A Method for Stochastic Optimization, arXiv:1412.6980, 2015",
      .bytes = kExchangeBytes,
      .defaults = Adam::Options{},
      .l2_regularization = true,
      .make = make_with_exchange<Adam>,
  };
  return method;
}

const OptimizerMethod& adamw_method() {
  static const OptimizerMethod method{
      .name = "adamw",
      .help = "Adam with decoupled weight decay, as in PyTorch",
      .paper = "Loshchilov and Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101, 2019",
      .bytes = kExchangeBytes,
      .defaults = AdamW::Options{},
      .make = make_with_exchange<AdamW>,
  };
  return method;
}

const OptimizerMethod& bert_adam_method() {
  static const OptimizerMethod method{
      .name = "bert_adam",
      .help = "Adam with decoupled weight decay and no bias correction, as in BERT's training",
      .paper =
          "Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding, "
          "arXiv:1810.04805, 2019",
      .bytes = kExchangeBytes,
      .defaults = BertAdam::Options{},
      .make = make_with_exchange<BertAdam>,
  };
  return method;
}

}  // namespace godwit
