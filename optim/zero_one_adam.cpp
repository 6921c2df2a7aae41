#include "optim/zero_one_adam.h"

#include <algorithm>
#include <cmath>

#include "engine/update_each.h"
#include "optim/adam.h"
#include "optim/decay.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/one_bit_options.h"
#include "optim/state.h"
#include "optim/sync_schedule.h"
#include "optim/variance_freeze.h"

namespace godwit {
namespace {

constexpr const char* kZeroOneAdam = "zero_one_adam";

// Text for a run without local steps, although max_interval allows them.
std::string every_step_notice(const ZeroOneAdam::Options& o, int64_t steps) {
  const char* reason = o.intervals == ZeroOneAdam::Intervals::fixed || o.warmup_steps >= steps - 1
                           ? "the warm-up is too long for local steps; lower optimizer.warmup_steps or "
                             "optimizer.warmup_fraction"
                       : o.intervals == ZeroOneAdam::Intervals::learning_rate
                           ? "the learning rate does not fall to half of its value at the end of the warm-up; set "
                             "optimizer.intervals=doubling, or another schedule"
                           : "the run ends before an interval exceeds one step; lower optimizer.doubling_steps or the "
                             "warm-up";
  return detail::concat(kZeroOneAdam, " synchronizes in every step of this run, because ", reason);
}

}  // namespace

void ZeroOneAdam::Options::describe(OptionList& list) {
  describe_common(*this, list);
  describe_moments(*this, list, "added to the second moment, inside the root");
  describe_warmup(*this, list, "warm-up with a synchronization in every step");
  list.add(
      "bias_correction", bias_correction,
      "weight a squared gradient by the number of steps since the previous change of the second moment, and apply "
      "Adam's bias correction");
  list.add("refresh_variance", refresh_variance,
           "after the last change of the second moments, estimate second moments that are still 0 in a few steps, in "
           "which their buckets are also sent uncompressed");
  list.add("intervals", intervals,
           "number of steps between synchronizations after the warm-up, at most max_interval: doubled every "
           "doubling_steps, fixed at max_interval, or doubled each time the learning rate has halved");
  list.add("max_interval", max_interval, "largest number of steps between synchronizations", kAtLeastOne);
  list.add("doubling_steps", doubling_steps,
           "intervals=doubling: steps after which an interval doubles; 0: the length of the warm-up", kNotNegative);
  list.add("kappa", kappa, "number of changes of the second moment after which their interval doubles", kAtLeastOne);
  list.add("variance_interval", variance_interval,
           "steps between changes of the second moment; 0: the interval doubles as given by kappa", kNotNegative);
  list.add("freeze_step", freeze_step,
           "last step that may change the second moment; 0: until an interval exceeds one step", kNotNegative);
}

void ZeroOneAdam::Options::check() const {
  godwit::check(doubling_steps == 0 || intervals == Intervals::doubling, kZeroOneAdam, ": doubling_steps is ",
                doubling_steps,
                ", but it is read with intervals=doubling only; set optimizer.intervals=doubling, or leave it out");
}

void ZeroOneAdam::Options::fit(const Schedule& schedule, int64_t steps) {
  warmup_steps = warmup_of_run(kZeroOneAdam, warmup_fraction, warmup_steps, steps, 0, "skip");
  for (const int64_t step : {int64_t{1}, steps})
    godwit::check(static_cast<float>(schedule.lr(step)) > 0, kZeroOneAdam, ": the learning rate of step ", step, " of ",
                  steps, " is ", schedule.lr(step),
                  "; momentum is recovered by dividing by it, so it must be positive: set ",
                  "--lr and schedule.final_fraction above 0");
  halvings.clear();
  const double peak = schedule.lr(std::max<int64_t>(warmup_steps, 1));
  for (int64_t factor = 2; intervals == Intervals::learning_rate && factor < 2 * max_interval; factor *= 2) {
    int64_t above = std::max<int64_t>(warmup_steps, 1), below = steps + 1;  // rates do not rise after the warm-up
    while (below - above > 1) {
      const int64_t middle = above + (below - above) / 2;
      (schedule.lr(middle) * static_cast<double>(factor) > peak ? above : below) = middle;
    }
    halvings.push_back(below);
  }
  godwit::check(freeze_step < steps, kZeroOneAdam, ": freeze_step ", freeze_step, " is not below the run's ", steps,
                " steps, so the variance would never be frozen; lower it");
}

ZeroOneAdam::~ZeroOneAdam() = default;

ZeroOneAdam::ZeroOneAdam(const Options& options, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      options_(options),
      m_(state_like(buckets, "m")),
      v_(state_like(buckets, "v")),
      u_(state_like(buckets, "u")),
      late_(options.refresh_variance, options.beta2, buckets.size()),
      all_reduce_(kZeroOneAdam, {options.sign_scale, options.block_size}, buckets, comm) {
  check_warmup_in_steps(kZeroOneAdam, options.warmup_fraction, options.warmup_steps);
  schedule_ = std::make_unique<SyncSchedule>(options);
  if (options.max_interval > 1) x_sync_ = state_like(buckets, "x_sync");
}

// Updates the state that all buckets share, at the first bucket's exchange of a step.
void ZeroOneAdam::begin(const StepInfo& step) {
  if (step.step == step_) return;
  check(static_cast<float>(step.lr) > 0, kZeroOneAdam, ": step ", step.step, ": the learning rate is ", step.lr,
        "; momentum is recovered by dividing by it, so it must be positive (schedule.final_fraction above 0)");
  first_ = sync_;
  if (first_) rate_sum_ = 0, keep_ = 1;
  step_ = step.step;
  const SyncSchedule::Step now = schedule_->at(step.step);
  sync_ = now.sync, variance_ = now.variance, refresh_ = now.refresh, since_variance_ = now.since_variance;
  rate_sum_ += step.lr;
  keep_ *= 1 - step.lr * options_.weight_decay;
}

// The weights of v and of ĝ², the squares of the mean gradient, when v changes in `step`. With bias correction, ĝ²
// counts for all n steps since the last change, so that v is Adam's v̂ if the squares were constant over these steps.
// Without a limit, the weight of ĝ² would exceed n/step and approach 1 for large n. The limit max(2/κ, n/step) keeps
// one batch from replacing v.
std::pair<double, double> ZeroOneAdam::variance_weights(int64_t step) const {
  if (!options_.bias_correction) return {options_.beta2, 1 - options_.beta2};
  const auto held = [&](int64_t steps) { return 1 - std::pow(options_.beta2, static_cast<double>(steps)); };
  const double share = static_cast<double>(since_variance_) / static_cast<double>(step);
  const double most = std::max(2 / static_cast<double>(options_.kappa), share);
  const double change = std::min(held(since_variance_) / held(step), most);
  return {1 - change, change};
}

void ZeroOneAdam::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  begin(step);
  refresh(bucket, comm);
  const auto r = [](double value) { return static_cast<float>(value); };
  Tensor mean;
  if (variance_) {
    mean = bucket.grad.clone();
    dense_mean(*comm.world, mean, options_.dense_wire, "zero_one_adam/variance");
  }
  on_device(bucket.grad, [&](auto device) {
    float *m = state_ptr<float>(device, m_, bucket), *u = state_ptr<float>(device, u_, bucket);
    const auto [begin, end] = bucket.owned;
    if (mean.defined()) {
      const auto [keep, change] = variance_weights(step.step);
      const one_bit::VarianceUpdate update{{r(keep), r(change)}};
      const float* g = data_ptr<float>(device, mean);
      update_each(device, kZeroOneAdam, begin, end, update, state_ptr<float>(device, v_, bucket), g);
    }
    const one_bit::LocalMomentum update{{r(options_.beta1), r(1 - options_.beta1)}, r(step.lr)};
    const float* g = data_ptr<float>(device, bucket.grad);
    update_each(device, kZeroOneAdam, begin, end, update, m, u, g);
  });
  if (sync_) agree(bucket, comm);
}

// Measures the second moments of values with v = 0, and sets v in a refresh.
void ZeroOneAdam::refresh(Bucket& bucket, Communicator& comm) {
  const Tensor &v = state_of(v_, bucket), &e = all_reduce_.residual(bucket);
  late_.begin(step_, schedule_->last_variance());
  late_.measure(bucket, v, e);
  if (!refresh_ || !late_.any(bucket, v)) return;
  const Tensor mean = late_.exchange(bucket, v, e, *comm.world, options_.dense_wire, "zero_one_adam/refresh");
  fill_variance(bucket, v, mean, 1 / late_.correction());
}

void ZeroOneAdam::agree(Bucket& bucket, Communicator& comm) {
  const Tensor& u = state_of(u_, bucket);
  const bool frozen = step_ > schedule_->last_variance();
  if (frozen) late_.mean(all_reduce_, bucket, state_of(v_, bucket), u, u, comm, step_);
  else all_reduce_.mean(bucket, u, u, comm, step_);
}

void ZeroOneAdam::apply(Bucket& bucket, const StepInfo& step) {
  if (first_ && !sync_) state_of(x_sync_, bucket).copy_from(bucket.param.range(0, bucket.numel));
  if (sync_) return apply_agreed(bucket);
  on_device(bucket.param, [&](auto device) {
    float* x = data_ptr<float>(device, bucket.param);
    const float *m = state_ptr<float>(device, m_, bucket), *v = state_ptr<float>(device, v_, bucket);
    const auto update = [&](double decay) {
      return one_bit::LocalUpdate{static_cast<float>(1 - step.lr * decay), static_cast<float>(step.lr),
                                  static_cast<float>(options_.eps), limit_of(options_.update_limit)};
    };
    update_by_decay(device, kZeroOneAdam, bucket, options_.weight_decay, options_.decay_norm_and_bias, update, x, m, v);
  });
}

void ZeroOneAdam::apply_agreed(Bucket& bucket) {
  on_device(bucket.param, [&](auto device) {
    float* x = data_ptr<float>(device, bucket.param);
    float *u = state_ptr<float>(device, u_, bucket), *m = state_ptr<float>(device, m_, bucket);
    const float* base = first_ ? x : state_ptr<float>(device, x_sync_, bucket);
    const float* v = state_ptr<float>(device, v_, bucket);
    const auto update = [&](double decay) {
      return one_bit::SyncUpdate{static_cast<float>(decay > 0 ? keep_ : 1), static_cast<float>(rate_sum_),
                                 static_cast<float>(options_.eps), limit_of(options_.update_limit)};
    };
    update_by_decay(device, kZeroOneAdam, bucket, options_.weight_decay, options_.decay_norm_and_bias, update, x, base,
                    u, m, v);
  });
}

void ZeroOneAdam::synchronize(Buckets& buckets, Communicator& comm) {
  if (sync_) return;
  first_ = false;  // the parameters already include the last step
  for (Bucket& bucket : buckets) {
    agree(bucket, comm);
    apply_agreed(bucket);
  }
  sync_ = true;
}

// Checkpoints are saved after synchronizations.
void ZeroOneAdam::restore(const std::vector<double>& counters) {
  schedule_ = std::make_unique<SyncSchedule>(options_);
  sync_ = true, step_ = 0;
  late_.restore(counters);
}

std::vector<double> ZeroOneAdam::counters() const {
  std::vector<double> all;
  late_.add_to(all);
  return all;
}

std::vector<StateTensor> ZeroOneAdam::state() const {
  std::vector<StateTensor> m = m_, u = u_;
  for (StateTensor& part : m) part.replicated = sync_;
  for (StateTensor& part : u) part.replicated = sync_;
  return concat(concat(concat(std::move(m), v_), concat(std::move(u), x_sync_)), all_reduce_.state());
}

const OptimizerMethod& zero_one_adam_method() {
  using Options = ZeroOneAdam::Options;
  static const OptimizerMethod method{
      .name = kZeroOneAdam,
      .help = "Adam with momentum in 1 bit per parameter from the start, and with local steps",
      .paper =
          "Lu et al., Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam, arXiv:2202.06009, "
          "2023",
      .bytes = "d(W−1)/(4W) to synchronize, 4d(W−1)/W to change the second moment, 0 in local steps",
      .defaults = Options{},
      .communicates_itself = true,
      .make = make_communicating<ZeroOneAdam>,
      .fit = [](AnyOptions& o, const Schedule& schedule, int64_t steps) { o.as<Options>().fit(schedule, steps); },
      .notices =
          [](const AnyOptions& any, int64_t steps) {
            const Options& o = any.as<Options>();
            std::vector<std::string> all;
            if (!o.bias_correction) all = frozen_variance_notices(kZeroOneAdam, o.beta2, variance_changes(o, steps));
            if (o.max_interval > 1 && synchronizations(o, steps) == steps) all.push_back(every_step_notice(o, steps));
            return all;
          },
      .divergence_hint = long_steps_hint(kZeroOneAdam),
  };
  return method;
}

}  // namespace godwit
