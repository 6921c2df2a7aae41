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
    coefficients_.push_back(Tensor::full({std::ssize(bucket.slots)}, 1, DType::f64));
    for (const Slot& slot : bucket.slots) {
      const int64_t begin = std::max(slot.offset, bucket.owned.begin);
      const int64_t owned = std::min(slot.offset + slot.numel, bucket.owned.end) - begin;
      check(owned <= 0 || owned == slot.numel, "lamb: a rank owns ", owned, " of the ", slot.numel, " values of '",
            slot.name, "', but LAMB needs the norm of the whole parameter; shard whole parameters (a block size of 0)");
    }
  }
}

ParameterRanges::ParameterRanges(const Bucket& bucket) {
  const auto [begin, end] = bucket.owned;
  for (const Slot& slot : bucket.slots)
    ranges.push_back({std::clamp(slot.offset, begin, end), std::clamp(slot.offset + slot.numel, begin, end)});
  for (size_t i = 1; i < ranges.size(); ++i) bounds.push_back(ranges[i].begin);
}

void Lamb::apply(Bucket& bucket, const StepInfo& step) {
  on_device(bucket.param, [&](auto device) {
    dispatch_real(bucket.param.dtype(), "lamb", [&]<class T>() { apply_on<T>(device, bucket, step); });
  });
}

template <class T, class Where>
void Lamb::apply_on(Where device, Bucket& bucket, const StepInfo& step) {
  const ParameterRanges parameters(bucket);
  if (parameters.empty()) return;
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
  const Tensor squares_x = detail::squares_of_ranges(device, bucket.param, parameters.ranges);
  const Tensor squares_r = detail::squares_of_ranges(device, bucket.grad, parameters.ranges);
  const Tensor &last = coefficients(bucket), rates(last.shape(), dtype_of<T>, last.device());
  const double *of_x = data_ptr<double>(device, squares_x), *of_r = data_ptr<double>(device, squares_r);
  T* const rate = data_ptr<T>(device, rates);
  update_each(device, "lamb", 0, rates.numel(), LambCoefficient<T>{step.lr, options_.min_coeff, options_.max_coeff},
              data_ptr<double>(device, last), rate, of_x, of_r);
  update_by_parts(device, "lamb", parameters.begin(), parameters.end(), parameters.bounds, SubtractScaledParts<T>{rate},
                  x, static_cast<const T*>(g));
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

const Tensor& Lamb::coefficients(const Bucket& bucket) const {
  return coefficients_.at(static_cast<size_t>(bucket.index));
}

}  // namespace godwit
