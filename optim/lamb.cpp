#include "optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "engine/parallel.h"
#include "optim/clip.h"
#include "optim/state.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/lamb.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optim/moments-inl.h"

#ifndef GODWIT_OPTIM_LAMB_ARGS
#define GODWIT_OPTIM_LAMB_ARGS
namespace godwit {
template <class T>
struct LambArgs : Moments<T> {
  T* g;  // ← r
  const T* x;
  T correction, decay;  // 1 − β1ᵗ or 1; λ
};
}  // namespace godwit
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void lamb_range(const LambArgs<T>& a, int64_t begin, int64_t end) {
  for_lanes<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    hn::Vec<decltype(d)> m, root;
    advance<T>(a, d, i, hn::LoadU(d, a.g + i), m, root);
    const auto ratio = hn::Div(hn::Div(m, hn::Set(d, a.correction)), root);
    hn::StoreU(hn::Add(ratio, hn::Mul(hn::Set(d, a.decay), hn::LoadU(d, a.x + i))), d, a.g + i);
  });
}

template <class T>
HWY_INLINE void update_range(T* x, const T* r, T rate, int64_t begin, int64_t end) {
  for_lanes<T>(begin, end, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::LoadU(d, x + i), hn::Mul(hn::Set(d, rate), hn::LoadU(d, r + i))), d, x + i);
  });
}

void lamb_f32(const LambArgs<float>& a, int64_t begin, int64_t end) { lamb_range(a, begin, end); }
void lamb_f64(const LambArgs<double>& a, int64_t begin, int64_t end) { lamb_range(a, begin, end); }
void update_f32(float* x, const float* r, float rate, int64_t begin, int64_t end) {
  update_range(x, r, rate, begin, end);
}
void update_f64(double* x, const double* r, double rate, int64_t begin, int64_t end) {
  update_range(x, r, rate, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {
namespace {

HWY_EXPORT(lamb_f32);
HWY_EXPORT(lamb_f64);
HWY_EXPORT(update_f32);
HWY_EXPORT(update_f64);
void lamb(const LambArgs<float>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(lamb_f32)(a, begin, end); }
void lamb(const LambArgs<double>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(lamb_f64)(a, begin, end); }
void update(float* x, const float* r, float rate, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(update_f32)(x, r, rate, begin, end);
}
void update(double* x, const double* r, double rate, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(update_f64)(x, r, rate, begin, end);
}

constexpr int64_t kGrain = 1 << 15;

template <class T>
void spread_update(T* x, const T* r, T rate, int64_t n) {
  parallel_for(
      n, kGrain, [=](int64_t begin, int64_t end) { update(x, r, rate, begin, end); }, 32);
}

}  // namespace

Lamb::Lamb(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), config_(config), m_(state_like(buckets, "m")), v_(state_like(buckets, "v")) {
  for (const Bucket& bucket : buckets) {
    coefficients_.emplace_back(bucket.slots.size(), 1.0);
    for (const Slot& slot : bucket.slots) {
      const int64_t begin = std::max(slot.offset, bucket.owned.begin);
      const int64_t owned = std::min(slot.offset + slot.numel, bucket.owned.end) - begin;
      check(owned <= 0 || owned == slot.numel, config.name, ": a rank owns ", owned, " of the ", slot.numel,
            " values of '", slot.name,
            "', but the norm is of all of them; leave the state whole (exchange.sharding=none)");
    }
  }
}

void Lamb::apply(Bucket& bucket, const StepInfo& step) {
  const double t = static_cast<double>(step.step);
  std::vector<double>& coefficients = coefficients_.at(static_cast<size_t>(bucket.index));
  dispatch_real(bucket.param.dtype(), "lamb", [&]<class T>() {
    const auto r = [](double value) { return static_cast<T>(value); };
    LambArgs<T> a{};
    a.set(config_, by_offset<T>(m_, bucket), by_offset<T>(v_, bucket),
          config_.bias_correction ? std::sqrt(1 - std::pow(config_.beta2, t)) : 1);
    a.g = bucket.grad.data<T>(), a.x = bucket.param.data<T>();
    a.correction = r(config_.bias_correction ? 1 - std::pow(config_.beta1, t) : 1);
    for (size_t s = 0; s < bucket.slots.size(); ++s) {
      const Slot& slot = bucket.slots[s];
      if (slot.numel == 0 || slot.offset < bucket.owned.begin || slot.offset >= bucket.owned.end) continue;
      a.decay = r(slot.decay || config_.decay_norm_and_bias ? config_.weight_decay : 0);
      parallel_for(
          slot.numel, kGrain, [&](int64_t begin, int64_t end) { lamb(a, slot.offset + begin, slot.offset + end); }, 32);
      const Tensor x = bucket.param.range(slot.offset, slot.numel), change = bucket.grad.range(slot.offset, slot.numel);
      const double length = std::sqrt(sum_of_squares(x)), step_length = std::sqrt(sum_of_squares(change));
      const bool defined = length > 0 && step_length > 0;
      coefficients[s] = defined ? std::clamp(length / step_length, config_.min_coeff, config_.max_coeff) : 1;
      spread_update(x.data<T>(), change.data<T>(), r(step.lr * coefficients[s]), slot.numel);
    }
  });
}

std::vector<StatePart> Lamb::state() const { return joined(m_, v_); }

const std::vector<double>& Lamb::coefficients(const Bucket& bucket) const {
  return coefficients_.at(static_cast<size_t>(bucket.index));
}

void lamb_update(float* x, const float* r, float rate, int64_t n) { spread_update(x, r, rate, n); }
void lamb_decay(float* r, const float* x, float decay, int64_t n) { spread_update(r, x, -decay, n); }

}  // namespace godwit
#endif
