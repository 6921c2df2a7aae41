#include "optim/one_bit_adam.h"

#include <cmath>

#include "optim/decay.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/state.h"

namespace godwit {
namespace {

OptimizerConfig warmup_config(OptimizerConfig config) {
  config.name = config.bias_correction ? "adamw" : "bert_adam";
  return config;
}

}  // namespace

OneBitAdam::OneBitAdam(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      config_(config),
      adam_(warmup_config(config), buckets, nullptr),
      all_reduce_(config.name, {sign_scale(config.sign_scale), config.block_size}, buckets, comm) {
  const std::vector<StatePart> state = adam_.state();
  m_.assign(state.begin(), state.begin() + buckets.size());
  v_.assign(state.begin() + buckets.size(), state.end());
}

// Leaves the mean over all ranks in bucket.grad: of gradients during the warm-up, then of momenta.
void OneBitAdam::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  compressing_ = step.step > config_.warmup_steps;
  if (!compressing_) return comm.world->all_reduce(bucket.grad, Reduce::mean, config_.name + "/warmup_all_reduce");
  const Tensor& m = of_bucket(m_, bucket);
  const Tensor& z = config_.keep_local_momentum ? m : bucket.grad;
  const auto beta = static_cast<float>(config_.beta1), o = static_cast<float>(1 - config_.beta1);
  on_device(m, [&](auto device) {
    for_decay_ranges(device, bucket, 0, true, [&](int64_t begin, int64_t end, double) {
      one_bit::momentum(device, elements<float>(device, m), elements<float>(device, bucket.grad),
                        elements<float>(device, z), beta, o, begin, end);
    });
  });
  all_reduce_.mean(bucket, z, bucket.grad, comm, step.step);
}

void OneBitAdam::apply(Bucket& bucket, const StepInfo& step) {
  if (step.step <= config_.warmup_steps) return adam_.apply(bucket, step);
  const bool corrected = config_.bias_correction;
  const double t = static_cast<double>(step.step), frozen_at = static_cast<double>(config_.warmup_steps);
  one_bit::Frozen a{};
  a.step_size = static_cast<float>(corrected ? step.lr / (1 - std::pow(config_.beta1, t)) : step.lr);
  a.root_correction = static_cast<float>(corrected ? std::sqrt(1 - std::pow(config_.beta2, frozen_at)) : 1);
  a.eps = static_cast<float>(config_.eps);
  on_device(bucket.param, [&](auto device) {
    a.x = elements<float>(device, bucket.param), a.agreed = elements<float>(device, bucket.grad);
    a.m = config_.keep_local_momentum ? nullptr : by_offset<float>(device, m_, bucket);
    a.v = by_offset<float>(device, v_, bucket);
    for_decay_ranges(device, bucket, config_.weight_decay, config_.decay_norm_and_bias,
                     [&](int64_t begin, int64_t end, double decay) {
                       one_bit::Frozen range = a;
                       range.keep = static_cast<float>(1 - step.lr * decay);
                       one_bit::frozen_update(device, range, begin, end);
                     });
  });
}

std::vector<StatePart> OneBitAdam::state() const {
  std::vector<StatePart> m = m_;
  for (StatePart& part : m) part.replicated = !(config_.keep_local_momentum && compressing_);
  return joined(joined(std::move(m), v_), all_reduce_.state());
}

}  // namespace godwit
