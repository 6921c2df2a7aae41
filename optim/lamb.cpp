#include "optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "engine/update_each.h"
#include "optim/clip.h"
#include "optim/decay.h"
#include "optim/state.h"

namespace godwit {

void Lamb::Options::describe(OptionList& list) {
  describe_common(*this, list, "weight decay, part of the update whose norm is scaled");
  describe_moments(*this, list);
  list.add("bias_correction", bias_correction, "divide both moments by Adam's bias correction");
  describe_coefficients(*this, list);
}

void Lamb::Options::check() const { check_coefficients("lamb", min_coeff, max_coeff); }

void check_coefficients(const std::string& name, double min_coeff, double max_coeff) {
  check(min_coeff <= max_coeff, name, ": min_coeff ", min_coeff, " is above max_coeff ", max_coeff,
        "; min_coeff and max_coeff are the limits of a range");
}

Lamb::Lamb(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), options_(options), m_(state_like(buckets, "m")), v_(state_like(buckets, "v")) {
  for (const Bucket& bucket : buckets) {
    coefficients_.emplace_back(bucket.slots.size(), 1.0);
    for (const Slot& slot : bucket.slots) {
      const int64_t begin = std::max(slot.offset, bucket.owned.begin);
      const int64_t owned = std::min(slot.offset + slot.numel, bucket.owned.end) - begin;
      check(owned <= 0 || owned == slot.numel, "lamb: a rank owns ", owned, " of the ", slot.numel, " values of '",
            slot.name, "', but the norm is of all of them; leave the state whole (exchange.sharding=none)");
    }
  }
}

void Lamb::apply(Bucket& bucket, const StepInfo& step) {
  on_device(bucket.param, [&](auto device) {
    dispatch_real(bucket.param.dtype(), "lamb", [&]<class T>() { apply_on<T>(device, bucket, step); });
  });
}

template <class T, class Where>
void Lamb::apply_on(Where device, Bucket& bucket, const StepInfo& step) {
  const double t = static_cast<double>(step.step);
  const bool corrected = options_.bias_correction;
  const MomentsUpdate<T> moments(options_, corrected ? std::sqrt(1 - std::pow(options_.beta2, t)) : 1);
  const T correction = static_cast<T>(corrected ? 1 - std::pow(options_.beta1, t) : 1);
  T *x = data_ptr<T>(device, bucket.param), *g = data_ptr<T>(device, bucket.grad);
  T *m = state_ptr<T>(device, m_, bucket), *v = state_ptr<T>(device, v_, bucket);
  update_by_decay(
      device, "lamb", bucket, options_.weight_decay, options_.decay_norm_and_bias,
      [&](double decay) {
        return LambUpdate<T>{moments, correction, static_cast<T>(decay)};
      },
      g, m, v, static_cast<const T*>(x));
  std::vector<size_t> slots;
  std::vector<Segment> ranges;
  for (size_t s = 0; s < bucket.slots.size(); ++s) {
    const Slot& slot = bucket.slots[s];
    if (slot.numel == 0 || slot.offset < bucket.owned.begin || slot.offset >= bucket.owned.end) continue;
    slots.push_back(s);
    ranges.push_back({slot.offset, slot.offset + slot.numel});
  }
  const std::vector<double> parameters = detail::sums_of_squares(device, bucket.param, ranges);
  const std::vector<double> changes = detail::sums_of_squares(device, bucket.grad, ranges);
  std::vector<double>& coefficients = coefficients_.at(static_cast<size_t>(bucket.index));
  for (size_t i = 0; i < slots.size(); ++i) {
    const double length = std::sqrt(parameters[i]), step_length = std::sqrt(changes[i]);
    const bool defined = length > 0 && step_length > 0;
    double& coefficient = coefficients[slots[i]];
    coefficient = defined ? std::clamp(length / step_length, options_.min_coeff, options_.max_coeff) : 1;
    const SubtractScaled<T> update{static_cast<T>(step.lr * coefficient)};
    update_each(device, "lamb", ranges[i].begin, ranges[i].end, update, x, static_cast<const T*>(g));
  }
}

std::vector<StateTensor> Lamb::state() const { return concat(m_, v_); }

const OptimizerMethod& lamb_method() {
  static const OptimizerMethod method{
      .name = "lamb",
      .help = "Adam with the update of each parameter tensor scaled to the norm of the tensor",
      .paper =
          "You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 Minutes, arXiv:1904.00962, 2020",
      .bytes = kExchangeBytes,
      .defaults = Lamb::Options{},
      .needs_whole_parameters = true,
      .make = make_with_exchange<Lamb>,
  };
  return method;
}

const std::vector<double>& Lamb::coefficients(const Bucket& bucket) const {
  return coefficients_.at(static_cast<size_t>(bucket.index));
}

}  // namespace godwit
