#include "optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "engine/update_each.h"
#include "optim/clip.h"
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

Lamb::Lamb(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange, double coeff_beta)
    : Optimizer(std::move(exchange)),
      options_(options),
      m_(state_like(buckets, "m")),
      v_(state_like(buckets, "v")),
      coeff_beta_(static_cast<float>(coeff_beta)) {
  for (const Bucket& bucket : buckets) {
    mean_coefficients_.push_back(Tensor::zeros({std::ssize(bucket.slots)}));
    for (const Slot& slot : bucket.slots) {
      const int64_t begin = std::max(slot.offset, bucket.owned.begin);
      const int64_t owned = std::min(slot.offset + slot.numel, bucket.owned.end) - begin;
      check(owned <= 0 || owned == slot.numel, "lamb: a rank owns ", owned, " of the ", slot.numel, " values of '",
            slot.name, "', but LAMB needs the norm of the whole parameter; shard whole parameters (a block size of 0)");
    }
  }
}

ParameterRanges::ParameterRanges(const Bucket& bucket, bool decay, bool decay_norm_and_bias) {
  const auto [begin, end] = bucket.owned;
  for (const Slot& slot : bucket.slots) {
    ranges.push_back({std::clamp(slot.offset, begin, end), std::clamp(slot.offset + slot.numel, begin, end)});
    decays.push_back(decay && (slot.decay || decay_norm_and_bias));
  }
}

template <class T>
void lamb_update(Cpu device, const LambStep<T>& step, const Bucket& bucket, const ParameterRanges& parameters) {
  const T *x = step.x, *r = step.g;
  for (size_t i = 0; i < parameters.ranges.size(); ++i) {
    const Segment range = parameters.ranges[i];
    update_each(device, "lamb", range.begin, range.end, step.update_of(parameters.decays[i]), step.g, step.m, step.v,
                x);
    const auto squares = [&](const Tensor& values) { return sum_of_squares(values.range(range.begin, range.numel())); };
    T rate = 0;
    step.coefficient(step.mean[i], rate, squares(bucket.param), squares(bucket.grad));
    update_each(device, "lamb", range.begin, range.end, SubtractScaled<T>{rate}, step.x, r);
  }
}

void Lamb::apply(Bucket& bucket, const StepInfo& step) {
  on_device(bucket.param, [&](auto device) {
    dispatch_real(bucket.param.dtype(), "lamb", [&]<class T>() { apply_on<T>(device, bucket, step); });
  });
}

template <class T, class Where>
void Lamb::apply_on(Where device, Bucket& bucket, const StepInfo& step) {
  const ParameterRanges parameters(bucket, options_);
  if (parameters.empty()) return;
  const double t = static_cast<double>(step.step);
  const bool corrected = options_.bias_correction;
  const MomentsUpdate<T> moments(options_, corrected ? std::sqrt(1 - std::pow(options_.beta2, t)) : 1);
  const T correction = static_cast<T>(corrected ? 1 - std::pow(options_.beta1, t) : 1);
  const LambStep<T> of_bucket{
      .update = {moments, correction, static_cast<T>(options_.weight_decay)},
      .coefficient = {step.lr, options_.min_coeff, options_.max_coeff, coeff_beta_, 1 - coeff_beta_},
      .g = data_ptr<T>(device, bucket.grad),
      .m = state_ptr<T>(device, m_, bucket),
      .v = state_ptr<T>(device, v_, bucket),
      .x = data_ptr<T>(device, bucket.param),
      .mean = data_ptr<float>(device, mean_coefficients(bucket))};
  lamb_update(device, of_bucket, bucket, parameters);
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
      .needs_whole_parameters = [](const AnyOptions&) { return true; },
      .relative_lr = true,
      .make = make_with_exchange<Lamb>,
  };
  return method;
}

const Tensor& Lamb::mean_coefficients(const Bucket& bucket) const {
  return mean_coefficients_.at(static_cast<size_t>(bucket.index));
}

}  // namespace godwit
