#include "optim/sgd.h"

#include "optim/decay.h"
#include "optim/state.h"
#include "optim/kernels/update_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/sgd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optim/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void sgd_range(const SgdArgs<T>& a, int64_t begin, int64_t end) {
  for_lanes<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, a.x + i);
    auto g = hn::Add(hn::LoadU(d, a.g + i), hn::Mul(hn::Set(d, a.decay), x));
    if (a.v) {
      const auto momentum = hn::Set(d, a.momentum);
      const auto v = hn::Add(hn::Mul(momentum, hn::LoadU(d, a.v + i)), g);
      hn::StoreU(v, d, a.v + i);
      g = a.nesterov ? hn::Add(g, hn::Mul(momentum, v)) : v;
    }
    hn::StoreU(hn::Sub(x, hn::Mul(hn::Set(d, a.lr), g)), d, a.x + i);
  });
}

void sgd_f32(const SgdArgs<float>& a, int64_t begin, int64_t end) { sgd_range(a, begin, end); }
void sgd_f64(const SgdArgs<double>& a, int64_t begin, int64_t end) { sgd_range(a, begin, end); }

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
void sgd(Cpu, const SgdArgs<float>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(sgd_f32)(a, begin, end); }
void sgd(Cpu, const SgdArgs<double>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(sgd_f64)(a, begin, end); }

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
      SgdArgs<T> a{};
      a.x = data_ptr<T>(device, bucket.param), a.g = data_ptr<T>(device, bucket.grad);
      if (!momentum_.empty()) a.v = state_ptr<T>(device, momentum_, bucket);
      a.lr = static_cast<T>(step.lr), a.momentum = static_cast<T>(decay_rate_), a.nesterov = nesterov_;
      for_decay_ranges(device, bucket, options_.weight_decay, options_.decay_norm_and_bias,
                       [&](int64_t begin, int64_t end, double decay) {
                         SgdArgs<T> range = a;
                         range.decay = static_cast<T>(decay);
                         sgd(device, range, begin, end);
                       });
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
      .make = make_with_exchange<Sgdm>,
  };
  return method;
}

}  // namespace godwit
#endif
