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

Adam::Adam(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), config_(config), m_(state_like(buckets, "m")), v_(state_like(buckets, "v")) {}

void Adam::apply(Bucket& bucket, const StepInfo& step) {
  const bool decoupled = config_.name != "adam", corrected = config_.name != "bert_adam";
  const double t = static_cast<double>(step.step), beta1 = config_.beta1, beta2 = config_.beta2;
  const double step_size = corrected ? step.lr / (1 - std::pow(beta1, t)) : step.lr;
  const double root_correction = corrected ? std::sqrt(1 - std::pow(beta2, t)) : 1;
  dispatch_real(bucket.param.dtype(), "adam", [&]<class T>() {
    const auto r = [](double value) { return static_cast<T>(value); };
    on_device(bucket.param, [&](auto device) {
      AdamArgs<T> a{};
      a.x = elements<T>(device, bucket.param), a.g = elements<T>(device, bucket.grad);
      a.set(config_, by_offset<T>(device, m_, bucket), by_offset<T>(device, v_, bucket), root_correction);
      a.step_size = r(step_size);
      for_decay_ranges(device, bucket, config_.weight_decay, config_.decay_norm_and_bias,
                       [&](int64_t begin, int64_t end, double decay) {
                         AdamArgs<T> range = a;
                         range.l2 = decoupled ? T{0} : r(decay);
                         range.keep = decoupled ? r(1 - step.lr * decay) : T{1};
                         adam(device, range, begin, end);
                       });
    });
  });
}

std::vector<StatePart> Adam::state() const { return joined(m_, v_); }

}  // namespace godwit
#endif
