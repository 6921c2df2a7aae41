#include "optim/zero_one_adam.h"

#include "optim/decay.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/state.h"

namespace godwit {

ZeroOneAdam::ZeroOneAdam(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      config_(config),
      sets_(config),
      m_(state_like(buckets, "m")),
      v_(state_like(buckets, "v")),
      u_(state_like(buckets, "u")),
      all_reduce_(config.name, {sign_scale(config.sign_scale), config.block_size}, buckets, comm) {
  if (config.max_interval > 1) x_sync_ = state_like(buckets, "x_sync");
}

// Updates the state that all buckets share, at the first bucket's exchange of a step.
void ZeroOneAdam::begin(const StepInfo& step) {
  if (step.step == step_) return;
  check(static_cast<float>(step.lr) > 0, config_.name, ": step ", step.step, ": the learning rate is ", step.lr,
        "; momentum is recovered by dividing by it, so it must be positive (schedule.final_fraction above 0)");
  first_ = now_.sync;
  if (first_) rate_sum_ = 0, keep_ = 1;
  step_ = step.step;
  now_ = sets_.at(step.step);
  rate_sum_ += step.lr;
  keep_ *= 1 - step.lr * config_.weight_decay;
}

void ZeroOneAdam::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  begin(step);
  const auto r = [](double value) { return static_cast<float>(value); };
  Tensor mean;
  if (now_.variance && first_) {
    mean = bucket.grad.clone();
    comm.world->all_reduce(mean, Reduce::mean, config_.name + "/variance_all_reduce");
  }
  on_device(bucket.grad, [&](auto device) {
    float *m = by_offset<float>(device, m_, bucket), *u = by_offset<float>(device, u_, bucket);
    for_decay_ranges(device, bucket, 0, true, [&](int64_t begin, int64_t end, double) {
      if (mean.defined())
        one_bit::variance(device, by_offset<float>(device, v_, bucket), elements<float>(device, mean), r(config_.beta2),
                          r(1 - config_.beta2), begin, end);
      one_bit::local_momentum(device, m, u, elements<float>(device, bucket.grad), r(config_.beta1),
                              r(1 - config_.beta1), r(step.lr), begin, end);
    });
  });
  if (now_.sync) agree(bucket, comm);
}

void ZeroOneAdam::agree(Bucket& bucket, Communicator& comm) {
  const Tensor& u = of_bucket(u_, bucket);
  all_reduce_.mean(bucket, u, u, comm, step_);
}

void ZeroOneAdam::apply(Bucket& bucket, const StepInfo& step) {
  if (first_ && !now_.sync) of_bucket(x_sync_, bucket).copy_from(bucket.param.range(0, bucket.numel));
  if (now_.sync) return apply_agreed(bucket);
  on_device(bucket.param, [&](auto device) {
    float* x = elements<float>(device, bucket.param);
    const float *m = by_offset<float>(device, m_, bucket), *v = by_offset<float>(device, v_, bucket);
    for_decay_ranges(device, bucket, config_.weight_decay, config_.decay_norm_and_bias,
                     [&](int64_t begin, int64_t end, double decay) {
                       one_bit::local_update(device, x, m, v, static_cast<float>(1 - step.lr * decay),
                                             static_cast<float>(step.lr), static_cast<float>(config_.eps), begin, end);
                     });
  });
}

void ZeroOneAdam::apply_agreed(Bucket& bucket) {
  one_bit::Sync a{};
  a.rate_sum = static_cast<float>(rate_sum_), a.eps = static_cast<float>(config_.eps);
  on_device(bucket.param, [&](auto device) {
    a.x = elements<float>(device, bucket.param), a.base = first_ ? a.x : by_offset<float>(device, x_sync_, bucket);
    a.u = by_offset<float>(device, u_, bucket), a.m = by_offset<float>(device, m_, bucket);
    a.v = by_offset<float>(device, v_, bucket);
    for_decay_ranges(device, bucket, config_.weight_decay, config_.decay_norm_and_bias,
                     [&](int64_t begin, int64_t end, double decay) {
                       one_bit::Sync range = a;
                       range.keep = static_cast<float>(decay > 0 ? keep_ : 1);
                       one_bit::sync_update(device, range, begin, end);
                     });
  });
}

void ZeroOneAdam::synchronise(Buckets& buckets, Communicator& comm) {
  if (now_.sync) return;
  first_ = false;  // the parameters already include the last step
  for (Bucket& bucket : buckets) {
    agree(bucket, comm);
    apply_agreed(bucket);
  }
  now_.sync = true;
}

std::vector<StatePart> ZeroOneAdam::state() const {
  std::vector<StatePart> m = m_, u = u_;
  for (StatePart& part : m) part.replicated = now_.sync;
  for (StatePart& part : u) part.replicated = now_.sync;
  return joined(joined(joined(std::move(m), v_), joined(std::move(u), x_sync_)), all_reduce_.state());
}

}  // namespace godwit
