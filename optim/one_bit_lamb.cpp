#include "optim/one_bit_lamb.h"

#include <algorithm>
#include <cmath>

#include "engine/update_each.h"
#include "optim/clip.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/state.h"
#include "optim/warmup.h"

namespace godwit {
namespace {

constexpr const char* kName = "one_bit_lamb";

Lamb::Options warmup_options(const OneBitLamb::Options& o) {
  return {.lr = o.lr,
          .weight_decay = o.weight_decay,
          .decay_norm_and_bias = o.decay_norm_and_bias,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .bias_correction = o.bias_correction,
          .min_coeff = o.min_coeff,
          .max_coeff = o.max_coeff};
}

std::vector<std::vector<StateTensor>> one_per_slot(const Buckets& buckets, const std::string& name, double value) {
  std::vector<std::vector<StateTensor>> parts;
  for (const Bucket& bucket : buckets) {
    parts.emplace_back();
    for (const Slot& slot : bucket.slots) {
      const Tensor one({1}, DType::f32, kCpu);  // the host reads it in each step
      one.fill(value);
      parts.back().push_back({name, bucket.begin + slot.offset, one, true});
    }
  }
  return parts;
}

}  // namespace

void OneBitLamb::Options::describe(OptionList& list) {
  describe_common(*this, list, "weight decay, part of the update whose norm is scaled");
  describe_moments(*this, list);
  list.add("bias_correction", bias_correction, "divide both moments by Adam's bias correction");
  describe_freeze(*this, list);
  describe_warmup(*this, list, "warm-up by uncompressed LAMB");
  describe_coefficients(*this, list);
  list.add("coeff_beta", coeff_beta, "decay rate of the warm-up's mean norm ratio", kDecayRate);
  list.add("factor_min", factor_min, "smallest factor on the norm ratio after the warm-up", kAboveZeroToOne);
  list.add("factor_max", factor_max, "largest factor on the norm ratio after the warm-up", kAtLeastOne);
  list.add("factor_threshold", factor_threshold, "largest relative change of this factor in a step",
           {0, 1, false, true});
}

void OneBitLamb::Options::check() const { check_coefficients(kName, min_coeff, max_coeff); }

void OneBitLamb::Options::fit(const Schedule&, int64_t steps) {
  warmup_steps = warmup_of_run(kName, warmup_fraction, warmup_steps, steps, 1, "compress");
}

OneBitLamb::OneBitLamb(const Options& options, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      options_(options),
      freeze_(kName, options.warmup, options.warmup_steps, options.beta2,
              options.refresh_variance ? VarianceFreeze::Refresh::outgrown : VarianceFreeze::Refresh::off, buckets),
      lamb_(warmup_options(options), buckets, nullptr),
      v_fresh_(state_like(buckets, "v_fresh")),
      coefficients_(one_per_slot(buckets, "coefficient", 0)),
      factors_(one_per_slot(buckets, "factor", 1)),
      all_reduce_(kName, {options.sign_scale, options.block_size}, buckets, comm) {
  check_warmup_given(kName, options.warmup_fraction, options.warmup_steps);
  const std::vector<StateTensor> state = lamb_.state();
  m_.assign(state.begin(), state.begin() + buckets.size());
  v_.assign(state.begin() + buckets.size(), state.end());
}

void OneBitLamb::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  if (freeze_.warming_up(step.step)) {
    dense_mean(*comm.world, bucket.grad, options_.dense_wire, "one_bit_lamb/warmup");
    return freeze_.measure(bucket);
  }
  if (step.step == freeze_.frozen_at() + 1) state_of(v_fresh_, bucket).copy_from(state_of(v_, bucket));
  if (freeze_.refreshes(step.step)) {
    const Tensor mean =
        refresh_variance(freeze_, bucket, state_of(v_, bucket), correction(options_.beta2, freeze_.frozen_at()),
                         *comm.world, options_.dense_wire, "one_bit_lamb/refresh");
    fill_variance(bucket, state_of(v_fresh_, bucket), mean, correction(options_.beta2, step.step - 1));
  }
  on_device(bucket.grad, [&](auto device) {
    float* g = data_ptr<float>(device, bucket.grad);
    const float *m = state_ptr<float>(device, m_, bucket), *own = g;
    const one_bit::Average average{static_cast<float>(options_.beta1), static_cast<float>(1 - options_.beta1)};
    update_each(device, kName, bucket.owned.begin, bucket.owned.end, one_bit::MomentumUpdate{average}, g, m, own);
  });
  all_reduce_.mean(bucket, bucket.grad, bucket.grad, comm, step.step);
}

float* OneBitLamb::of_slot(const std::vector<std::vector<StateTensor>>& parts, const Bucket& bucket, size_t s) const {
  return parts.at(static_cast<size_t>(bucket.index)).at(s).values.data<float>();
}

void OneBitLamb::apply(Bucket& bucket, const StepInfo& step) {
  if (freeze_.frozen_at() > 0)
    return on_device(bucket.param, [&](auto device) { apply_frozen(device, bucket, step); });
  lamb_.apply(bucket, step);
  const auto beta = static_cast<float>(options_.coeff_beta);
  for (size_t s = 0; s < bucket.slots.size(); ++s) {
    float& average = *of_slot(coefficients_, bucket, s);
    average = beta * average + (1 - beta) * static_cast<float>(lamb_.coefficients(bucket)[s]);
  }
}

// The bias correction of a moment with the decay rate beta after `steps` changes; 1 without bias correction.
double OneBitLamb::correction(double beta, int64_t steps) const {
  return options_.bias_correction ? 1 - std::pow(beta, static_cast<double>(steps)) : 1;
}

template <class Where>
void OneBitLamb::apply_frozen(Where device, Bucket& bucket, const StepInfo& step) {
  const auto r = [](double value) { return static_cast<float>(value); };
  std::vector<size_t> slots;
  std::vector<Segment> ranges, decayed;
  const bool decays = options_.weight_decay > 0;
  const auto is_decayed = [&](const Slot& slot) { return decays && (slot.decay || options_.decay_norm_and_bias); };
  for (size_t s = 0; s < bucket.slots.size(); ++s) {
    const Slot& slot = bucket.slots[s];
    if (slot.numel == 0) continue;
    slots.push_back(s);
    ranges.push_back({slot.offset, slot.offset + slot.numel});
    if (is_decayed(slot)) decayed.push_back(ranges.back());
  }
  float *x = data_ptr<float>(device, bucket.param), *change = data_ptr<float>(device, bucket.grad);
  const one_bit::FrozenLambUpdate update{r(options_.beta1), r(1 - options_.beta1),
                                         {r(options_.beta2), r(1 - options_.beta2)},
                                         r(correction(options_.beta1, step.step)),
                                         r(std::sqrt(correction(options_.beta2, freeze_.frozen_at()))),
                                         r(std::sqrt(correction(options_.beta2, step.step))),
                                         r(options_.eps), limit_of(options_.update_limit)};
  const std::vector<float> largest =
      one_bit::frozen_lamb(device,
                           {update, state_ptr<float>(device, m_, bucket), change,
                            state_ptr<float>(device, v_fresh_, bucket), state_ptr<float>(device, v_, bucket)},
                           ranges);

  const std::vector<double> before = detail::sums_of_squares(device, bucket.grad, decayed);
  for (const Segment& range : decayed)
    update_each(device, kName, range.begin, range.end, SubtractScaled<float>{-r(options_.weight_decay)}, change,
                static_cast<const float*>(x));
  const std::vector<double> after = detail::sums_of_squares(device, bucket.grad, decayed);
  const double coefficient_correction = 1 - std::pow(options_.coeff_beta, static_cast<double>(freeze_.frozen_at()));
  for (size_t i = 0, d = 0; i < slots.size(); ++i) {
    double factor = largest[i];
    if (is_decayed(bucket.slots[slots[i]])) {
      const double length = std::sqrt(after[d]), share = length > 0 ? std::min(1.0, std::sqrt(before[d]) / length) : 1;
      factor = factor * share + 1 - share;
      ++d;
    }
    float& last = *of_slot(factors_, bucket, slots[i]);
    const double low = last * (1 - options_.factor_threshold), high = last * (1 + options_.factor_threshold);
    last = r(std::clamp(std::clamp(factor, options_.factor_min, options_.factor_max), low, high));
    const double coefficient = *of_slot(coefficients_, bucket, slots[i]) / coefficient_correction;
    const SubtractScaled<float> scaled{r(step.lr * last * coefficient)};
    update_each(device, kName, ranges[i].begin, ranges[i].end, scaled, x, static_cast<const float*>(change));
  }
}

std::vector<StateTensor> OneBitLamb::state() const {
  std::vector<StateTensor> all = concat(concat(m_, v_), v_fresh_);
  for (const auto& of_all : {coefficients_, factors_})
    for (const std::vector<StateTensor>& parts : of_all) all = concat(std::move(all), parts);
  return concat(std::move(all), all_reduce_.state());
}

const OptimizerMethod& one_bit_lamb_method() {
  using Options = OneBitLamb::Options;
  static const OptimizerMethod method{
      .name = kName,
      .help = "LAMB, then a frozen second moment and momentum in 1 bit per parameter",
      .paper =
          "Li et al., 1-bit LAMB: Communication Efficient Large-Scale Large-Batch Training with LAMB's Convergence "
          "Speed, arXiv:2104.06069, 2022",
      .bytes = "4d(W−1)/W in the warm-up, then d(W−1)/(4W)",
      .defaults = Options{},
      .communicates_itself = true,
      .needs_whole_parameters = true,
      .make = make_communicating<OneBitLamb>,
      .fit = [](AnyOptions& o, const Schedule& schedule, int64_t steps) { o.as<Options>().fit(schedule, steps); },
      .divergence_hint = long_steps_hint(kName),
  };
  return method;
}

}  // namespace godwit
