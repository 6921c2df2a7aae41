#include "optim/adam.h"

#include <cmath>

#include "optim/decay.h"
#include "optim/state.h"
#include "optim/kernels/update_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optim/kernels/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void adam_range(const AdamArgs<T>& a, int64_t begin, int64_t end) {
  for_lanes<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, a.x + i);
    const auto g = hn::Add(hn::LoadU(d, a.g + i), hn::Mul(hn::Set(d, a.l2), x));
    hn::Vec<decltype(d)> m, root;
    advance<T>(a, d, i, g, m, root);
    const auto kept = hn::Mul(hn::Set(d, a.keep), x);
    hn::StoreU(hn::Sub(kept, hn::Mul(hn::Set(d, a.step_size), hn::Div(m, root))), d, a.x + i);
  });
}

void adam_f32(const AdamArgs<float>& a, int64_t begin, int64_t end) { adam_range(a, begin, end); }
void adam_f64(const AdamArgs<double>& a, int64_t begin, int64_t end) { adam_range(a, begin, end); }

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);
void adam(Cpu, const AdamArgs<float>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(adam_f32)(a, begin, end); }
void adam(Cpu, const AdamArgs<double>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(adam_f64)(a, begin, end); }

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
      AdamArgs<T> a{};
      a.x = data_ptr<T>(device, bucket.param), a.g = data_ptr<T>(device, bucket.grad);
      a.set(options_, state_ptr<T>(device, m_, bucket), state_ptr<T>(device, v_, bucket), root_correction);
      a.step_size = r(step_size);
      for_decay_ranges(device, bucket, options_.weight_decay, options_.decay_norm_and_bias,
                       [&](int64_t begin, int64_t end, double decay) {
                         AdamArgs<T> range = a;
                         range.l2 = decoupled_ ? T{0} : r(decay);
                         range.keep = decoupled_ ? r(1 - step.lr * decay) : T{1};
                         adam(device, range, begin, end);
                       });
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
      .help = "Adam with decoupled weight decay and no bias correction, as BERT was trained",
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
#endif
