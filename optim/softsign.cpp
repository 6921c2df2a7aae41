#include "optim/softsign.h"

#include "optim/decay.h"
#include "optim/state.h"
#include "optim/kernels/update_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/softsign.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optim/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void softsign_range(const SoftSignArgs<T>& a, int64_t begin, int64_t end) {
  for_lanes<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    const auto beta = hn::Set(d, a.beta), o = hn::Set(d, a.o);
    const auto g = hn::LoadU(d, a.g + i);
    const auto m = hn::Add(hn::Mul(beta, hn::LoadU(d, a.m + i)), hn::Mul(o, g));
    const auto b = hn::Add(hn::Mul(beta, hn::LoadU(d, a.b + i)), hn::Mul(o, hn::Abs(g)));
    hn::StoreU(m, d, a.m + i);
    hn::StoreU(b, d, a.b + i);
    const auto ratio = hn::Div(m, hn::Add(b, hn::Set(d, a.eps)));
    const auto kept = hn::Mul(hn::Set(d, a.keep), hn::LoadU(d, a.x + i));
    hn::StoreU(hn::Sub(kept, hn::Mul(hn::Set(d, a.lr), ratio)), d, a.x + i);
  });
}

void softsign_f32(const SoftSignArgs<float>& a, int64_t begin, int64_t end) { softsign_range(a, begin, end); }
void softsign_f64(const SoftSignArgs<double>& a, int64_t begin, int64_t end) { softsign_range(a, begin, end); }

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(softsign_f32);
HWY_EXPORT(softsign_f64);
void softsign(Cpu, const SoftSignArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(softsign_f32)(a, begin, end);
}
void softsign(Cpu, const SoftSignArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(softsign_f64)(a, begin, end);
}

void SoftSignSgd::Options::describe(OptionList& list) {
  describe_common(*this, list);
  list.add("beta", beta, "decay rate of the means of gradients and of their magnitudes", kDecayRate);
  list.add("eps", eps, "added to the denominator", kPositiveFloat);
}

SoftSignSgd::SoftSignSgd(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), options_(options), m_(state_like(buckets, "m")), b_(state_like(buckets, "b")) {}

void SoftSignSgd::apply(Bucket& bucket, const StepInfo& step) {
  dispatch_real(bucket.param.dtype(), "softsignsgd", [&]<class T>() {
    const auto r = [](double value) { return static_cast<T>(value); };
    on_device(bucket.param, [&](auto device) {
      SoftSignArgs<T> a{};
      a.x = data_ptr<T>(device, bucket.param), a.g = data_ptr<T>(device, bucket.grad);
      a.m = state_ptr<T>(device, m_, bucket), a.b = state_ptr<T>(device, b_, bucket);
      a.lr = r(step.lr), a.beta = r(options_.beta), a.o = r(1 - options_.beta), a.eps = r(options_.eps);
      for_decay_ranges(device, bucket, options_.weight_decay, options_.decay_norm_and_bias,
                       [&](int64_t begin, int64_t end, double decay) {
                         SoftSignArgs<T> range = a;
                         range.keep = r(1 - step.lr * decay);
                         softsign(device, range, begin, end);
                       });
    });
  });
}

std::vector<StateTensor> SoftSignSgd::state() const { return concat(m_, b_); }

const OptimizerMethod& softsignsgd_method() {
  static const OptimizerMethod method{
      .name = "softsignsgd",
      .help = "mean gradient divided by mean magnitude of the gradient: Birder without quantization",
      .paper =
          "Peng et al., Birder: Communication-Efficient 1-bit Adaptive Optimizer for Practical Distributed DNN "
          "Training, NeurIPS 2023, appendix B",
      .bytes = kExchangeBytes,
      .defaults = SoftSignSgd::Options{},
      .make = make_with_exchange<SoftSignSgd>,
  };
  return method;
}

}  // namespace godwit
#endif
