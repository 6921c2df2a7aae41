#include "optim/sgd.h"

#include "engine/update_each.h"
#include "optim/decay.h"
#include "optim/state.h"

namespace godwit {

void Sgd::Options::describe(OptionList& list) { describe_common(*this, list, "L2 regularization"); }

void Sgdm::Options::describe(OptionList& list) {
  describe_common(*this, list, "L2 regularization");
  list.add("momentum", momentum, "decay rate of the sum of gradients", kDecayRate);
  list.add("nesterov", nesterov, "use Nesterov momentum");
}

void Sgdm::Options::check() const {
  godwit::check(!nesterov || momentum > 0, "sgdm: nesterov needs a momentum above 0");
}

Sgd::Sgd(const Options& options, const Buckets&, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), options_(options) {}

Sgdm::Sgdm(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Sgd({options.lr, options.weight_decay, options.decay_norm_and_bias}, buckets, std::move(exchange)) {
  momentum_ = state_like(buckets, "momentum");
  decay_rate_ = options.momentum;
  nesterov_ = options.nesterov;
}

void Sgd::apply(Bucket& bucket, const StepInfo& step) {
  dispatch_real(bucket.param.dtype(), "sgd", [&]<class T>() {
    on_device(bucket.param, [&](auto device) {
      T* x = data_ptr<T>(device, bucket.param);
      T* v = momentum_.empty() ? nullptr : state_ptr<T>(device, momentum_, bucket);
      const T *g = data_ptr<T>(device, bucket.grad), lr = static_cast<T>(step.lr), beta = static_cast<T>(decay_rate_);
      const auto with_momentum = [&](double decay) {
        return MomentumUpdate<T>{lr, static_cast<T>(decay), beta, nesterov_};
      };
      const auto without = [&](double decay) { return SgdUpdate<T>{lr, static_cast<T>(decay)}; };
      const double decay = options_.weight_decay;
      const bool all = options_.decay_norm_and_bias;
      if (v) update_by_decay(device, "sgdm", bucket, decay, all, with_momentum, x, v, g);
      else update_by_decay(device, "sgd", bucket, decay, all, without, x, g);
    });
  });
}

std::vector<StateTensor> Sgd::state() const { return momentum_; }

const OptimizerMethod& sgd_method() {
  static const OptimizerMethod method{
      .name = "sgd",
      .help = "stochastic gradient descent",
      .paper = "Robbins and Monro, A Stochastic Approximation Method, 1951",
      .bytes = kExchangeBytes,
      .defaults = Sgd::Options{},
      .l2_regularization = true,
      .make = make_with_exchange<Sgd>,
  };
  return method;
}

const OptimizerMethod& sgdm_method() {
  static const OptimizerMethod method{
      .name = "sgdm",
      .help = "stochastic gradient descent with momentum or Nesterov momentum",
      .paper = "Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning, 2013",
      .bytes = kExchangeBytes,
      .defaults = Sgdm::Options{},
      .l2_regularization = true,
      .make = make_with_exchange<Sgdm>,
  };
  return method;
}

}  // namespace godwit
