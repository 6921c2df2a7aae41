#include "optim/one_bit_lamb.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "engine/update_each.h"
#include "optim/clip.h"
#include "optim/one_bit_options.h"
#include "optim/state.h"
#include "optim/variance_freeze.h"

namespace godwit {
namespace {

constexpr const char* kOneBitLamb = "one_bit_lamb";
constexpr int64_t kNone = -1;  // an empty parameter has no state

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

// Applies the update to the elements of a parameter. Returns the largest ratio.
float update_frozen(const FrozenLambStep& a, const Segment& range) {
  int32_t largest = 0;  // the bits of positive floats have the order of their values
  std::mutex mutex;
  const auto update = [&](int64_t begin, int64_t end) GODWIT_INLINE {
    const one_bit::FrozenLambUpdate f = a.update;
    float *m = a.m + range.begin, *change = a.change + range.begin, *v_fresh = a.v_fresh + range.begin;
    const float* v = a.v + range.begin;
    int32_t own = 0;
    GODWIT_IN_PLACE
    for (int64_t i = begin; i < end; ++i) {
      float m_i = m[i], change_i = change[i], v_i = v_fresh[i];
      const float ratio = f(m_i, change_i, v_i, v[i]);
      m[i] = m_i, change[i] = change_i, v_fresh[i] = v_i;
      own = std::max(own, ratio > 0 ? std::bit_cast<int32_t>(ratio) : 0);  // ignores NaN
    }
    std::lock_guard lock(mutex);
    largest = std::max(largest, own);
  };
  vector_for(range.numel(), 1 << 15, update);
  return std::bit_cast<float>(largest);
}

}  // namespace

void frozen_lamb_update(Cpu device, const FrozenLambStep& a, const Bucket& bucket, const ParameterRanges& parameters) {
  const float *x = a.x, *r = a.change;
  for (size_t i = 0; i < parameters.ranges.size(); ++i) {
    const Segment range = parameters.ranges[i];
    const float largest = update_frozen(a, range);
    double of_p = 0, of_r = 0;
    if (parameters.decays[i]) {
      const Tensor change = bucket.grad.range(range.begin, range.numel());
      of_p = sum_of_squares(change);
      update_each(device, kOneBitLamb, range.begin, range.end, a.decay, a.change, x);
      of_r = sum_of_squares(change);
    }
    float rate = 0;
    a.factor(a.f[i], rate, a.mean[i], largest, of_p, of_r);
    update_each(device, kOneBitLamb, range.begin, range.end, SubtractScaled<float>{rate}, a.x, r);
  }
}

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

void OneBitLamb::Options::check() const { check_coefficients(kOneBitLamb, min_coeff, max_coeff); }

void OneBitLamb::Options::fit(const Schedule&, int64_t steps) {
  warmup_steps = warmup_of_run(kOneBitLamb, warmup_fraction, warmup_steps, steps, 1, "compress");
}

OneBitLamb::OneBitLamb(const Options& options, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      options_(options),
      freeze_(kOneBitLamb, options.warmup, options.warmup_steps, options.beta2,
              options.refresh_variance ? VarianceFreeze::Refresh::outgrown : VarianceFreeze::Refresh::off, buckets,
              comm.shards),
      late_(options.refresh_variance, options.beta2, buckets.size()),
      lamb_(warmup_options(options), buckets, nullptr, options.coeff_beta),
      v_fresh_(state_like(buckets, "v_fresh")),
      all_reduce_(kOneBitLamb, {options.sign_scale, options.block_size}, buckets, comm) {
  check_warmup_given(kOneBitLamb, options.warmup_fraction, options.warmup_steps);
  const std::vector<StateTensor> state = lamb_.state();
  m_.assign(state.begin(), state.begin() + buckets.size());
  v_.assign(state.begin() + buckets.size(), state.end());
  for (const Bucket& bucket : buckets) {
    means_.push_back(lamb_.mean_coefficients(bucket));
    factors_.push_back(Tensor::full({std::ssize(bucket.slots)}, 1));
    for (const Slot& slot : bucket.slots) firsts_.push_back(slot.numel > 0 ? bucket.begin + slot.offset : kNone);
  }
}

void OneBitLamb::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  if (freeze_.warming_up(step.step)) {
    dense_mean(*comm.world, bucket.grad, options_.dense_wire, "one_bit_lamb/warmup");
    return freeze_.measure(bucket);
  }
  if (step.step == freeze_.frozen_at() + 1) state_of(v_fresh_, bucket).copy_from(state_of(v_, bucket));
  const Tensor &v = state_of(v_, bucket), &e = all_reduce_.residual(bucket);
  late_.begin(step.step, freeze_.frozen_at());
  late_.measure(bucket, v, e);
  if (freeze_.refreshes(step.step)) {
    const Tensor mean = late_.exchange(bucket, v, e, *comm.world, options_.dense_wire, "one_bit_lamb/refresh");
    refresh_variance(freeze_, late_, bucket, v, mean, correction(options_.beta2, freeze_.frozen_at()));
    fill_variance(bucket, state_of(v_fresh_, bucket), mean,
                  correction(options_.beta2, step.step - 1) / late_.correction());
  }
  on_device(bucket.grad, [&](auto device) {
    float* g = data_ptr<float>(device, bucket.grad);
    const float *m = state_ptr<float>(device, m_, bucket), *own = g;
    const one_bit::Average average{static_cast<float>(options_.beta1), static_cast<float>(1 - options_.beta1)};
    update_each(device, kOneBitLamb, bucket.owned.begin, bucket.owned.end, one_bit::MomentumUpdate{average}, g, m, own);
  });
  late_.mean(all_reduce_, bucket, v, bucket.grad, bucket.grad, comm, step.step);
}

void OneBitLamb::apply(Bucket& bucket, const StepInfo& step) {
  if (freeze_.frozen_at() > 0)
    return on_device(bucket.param, [&](auto device) { apply_frozen(device, bucket, step); });
  lamb_.apply(bucket, step);
}

// The bias correction of a moment with the decay rate beta after `steps` changes; 1 without bias correction.
double OneBitLamb::correction(double beta, int64_t steps) const {
  return options_.bias_correction ? 1 - std::pow(beta, static_cast<double>(steps)) : 1;
}

template <class Where>
void OneBitLamb::apply_frozen(Where device, Bucket& bucket, const StepInfo& step) {
  const auto r = [](double value) { return static_cast<float>(value); };
  const ParameterRanges parameters(bucket, options_);
  if (parameters.empty()) return;
  const auto b = static_cast<size_t>(bucket.index);
  const double mean_correction = 1 - std::pow(options_.coeff_beta, static_cast<double>(freeze_.frozen_at()));
  const FrozenLambStep a{
      .update = {r(options_.beta1),
                 r(1 - options_.beta1),
                 {r(options_.beta2), r(1 - options_.beta2)},
                 r(correction(options_.beta1, step.step)),
                 r(std::sqrt(correction(options_.beta2, freeze_.frozen_at()))),
                 r(std::sqrt(correction(options_.beta2, step.step))),
                 r(options_.eps),
                 limit_of(options_.update_limit)},
      .decay = {r(options_.weight_decay)},
      .factor = {step.lr, mean_correction, options_.factor_min, options_.factor_max, options_.factor_threshold},
      .m = state_ptr<float>(device, m_, bucket),
      .change = data_ptr<float>(device, bucket.grad),
      .v_fresh = state_ptr<float>(device, v_fresh_, bucket),
      .v = state_ptr<float>(device, v_, bucket),
      .x = data_ptr<float>(device, bucket.param),
      .f = data_ptr<float>(device, factors_.at(b)),
      .mean = data_ptr<float>(device, means_.at(b))};
  frozen_lamb_update(device, a, bucket, parameters);
}

std::vector<double> OneBitLamb::counters() const {
  std::vector<double> all = freeze_.counters();
  late_.add_to(all);
  return all;
}

std::vector<StateTensor> OneBitLamb::state() const {
  std::vector<StateTensor> all = concat(concat(m_, v_), v_fresh_);
  const auto add = [&](const char* name, const std::vector<Tensor>& of_buckets) {
    auto first = firsts_.begin();
    for (const Tensor& values : of_buckets)
      for (int64_t s = 0; s < values.numel(); ++s)
        if (const int64_t begin = *first++; begin != kNone) all.push_back({name, begin, values.range(s, 1), true});
  };
  add("coefficient", means_);
  add("factor", factors_);
  return concat(std::move(all), all_reduce_.state());
}

const OptimizerMethod& one_bit_lamb_method() {
  using Options = OneBitLamb::Options;
  static const OptimizerMethod method{
      .name = kOneBitLamb,
      .help = "LAMB, then a frozen second moment and momentum in 1 bit per parameter",
      .paper =
          "Li et al., 1-bit LAMB: Communication Efficient Large-Scale Large-Batch Training with LAMB's Convergence "
          "Speed, arXiv:2104.06069, 2022",
      .bytes = "4d(W−1)/W in the warm-up, then d(W−1)/(4W)",
      .defaults = Options{},
      .communicates_itself = true,
      .needs_whole_parameters = [](const AnyOptions&) { return true; },
      .relative_lr = true,
      .make = make_communicating<OneBitLamb>,
      .fit = [](AnyOptions& o, const Schedule& schedule, int64_t steps) { o.as<Options>().fit(schedule, steps); },
      .divergence_hint = long_steps_hint(kOneBitLamb),
  };
  return method;
}

}  // namespace godwit
