#include "optim/one_bit_lamb.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "optim/clip.h"
#include "optim/decay.h"
#include "optim/one_bit_kernels.h"
#include "optim/state.h"

namespace godwit {
namespace {

OptimizerConfig warmup_config(OptimizerConfig config) {
  config.bias_correction = false;
  return config;
}

std::vector<std::vector<StatePart>> one_per_slot(const Buckets& buckets, const std::string& name, double value) {
  std::vector<std::vector<StatePart>> parts;
  for (const Bucket& bucket : buckets) {
    parts.emplace_back();
    for (const Slot& slot : bucket.slots)
      parts.back().push_back({name, bucket.begin + slot.offset, Tensor::full({1}, value), true});
  }
  return parts;
}

}  // namespace

OneBitLamb::OneBitLamb(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      config_(config),
      lamb_(warmup_config(config), buckets, nullptr),
      v_fresh_(state_like(buckets, "v_fresh")),
      coefficients_(one_per_slot(buckets, "coefficient", 0)),
      factors_(one_per_slot(buckets, "factor", 1)),
      all_reduce_(config.name, {sign_scale(config.sign_scale), config.block_size}, buckets, comm) {
  const std::vector<StatePart> state = lamb_.state();
  m_.assign(state.begin(), state.begin() + buckets.size());
  v_.assign(state.begin() + buckets.size(), state.end());
}

void OneBitLamb::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  if (step.step <= config_.warmup_steps)
    return comm.world->all_reduce(bucket.grad, Reduce::mean, config_.name + "/warmup_all_reduce");
  float* g = bucket.grad.data<float>();
  for_decay_ranges(bucket, 0, true, [&](int64_t begin, int64_t end, double) {
    one_bit::momentum(Cpu{}, by_offset<float>(m_, bucket), g, g, static_cast<float>(config_.beta1),
                      static_cast<float>(1 - config_.beta1), begin, end);
  });
  all_reduce_.mean(bucket, bucket.grad, bucket.grad, comm, step.step);
}

float* OneBitLamb::of_slot(const std::vector<std::vector<StatePart>>& parts, const Bucket& bucket, size_t s) const {
  return parts.at(static_cast<size_t>(bucket.index)).at(s).values.data<float>();
}

void OneBitLamb::apply(Bucket& bucket, const StepInfo& step) {
  if (step.step > config_.warmup_steps) {
    for (size_t s = 0; s < bucket.slots.size(); ++s)
      if (bucket.slots[s].numel > 0) apply_slot(bucket, s, step);
    return;
  }
  lamb_.apply(bucket, step);
  const bool last = step.step == config_.warmup_steps;
  const auto beta = static_cast<float>(config_.coeff_beta);
  for (size_t s = 0; s < bucket.slots.size(); ++s) {
    float& average = *of_slot(coefficients_, bucket, s);
    average = beta * average + (1 - beta) * static_cast<float>(lamb_.coefficients(bucket)[s]);
    if (last) average /= static_cast<float>(1 - std::pow(config_.coeff_beta, static_cast<double>(step.step)));
  }
  if (last) of_bucket(v_fresh_, bucket).copy_from(of_bucket(v_, bucket));
}

void OneBitLamb::apply_slot(Bucket& bucket, size_t s, const StepInfo& step) {
  const Slot& slot = bucket.slots[s];
  const auto r = [](double value) { return static_cast<float>(value); };
  one_bit::FrozenLamb a{};
  a.m = by_offset<float>(m_, bucket), a.agreed = bucket.grad.data<float>();
  a.v_fresh = by_offset<float>(v_fresh_, bucket), a.v = by_offset<float>(v_, bucket);
  a.beta1 = r(config_.beta1), a.o1 = r(1 - config_.beta1), a.beta2 = r(config_.beta2), a.o2 = r(1 - config_.beta2);
  a.eps = r(config_.eps);
  float largest = 0;
  std::mutex mutex;
  parallel_for(
      slot.numel, 1 << 15,
      [&](int64_t begin, int64_t end) {
        const float of_range = one_bit::frozen_lamb(a, slot.offset + begin, slot.offset + end);
        std::lock_guard lock(mutex);
        largest = std::max(largest, of_range);
      },
      32);

  const Tensor x = bucket.param.range(slot.offset, slot.numel), change = bucket.grad.range(slot.offset, slot.numel);
  double factor = largest;
  const double decay = slot.decay || config_.decay_norm_and_bias ? config_.weight_decay : 0;
  if (decay > 0) {
    const double before = std::sqrt(sum_of_squares(change));
    lamb_decay(change.data<float>(), x.data<float>(), r(decay), slot.numel);
    const double after = std::sqrt(sum_of_squares(change)), share = after > 0 ? std::min(1.0, before / after) : 1;
    factor = factor * share + 1 - share;
  }
  float& last = *of_slot(factors_, bucket, s);
  const double low = last * (1 - config_.factor_threshold), high = last * (1 + config_.factor_threshold);
  last = r(std::clamp(std::clamp(factor, config_.factor_min, config_.factor_max), low, high));
  const double coefficient = *of_slot(coefficients_, bucket, s);
  lamb_update(x.data<float>(), change.data<float>(), r(step.lr * last * coefficient), slot.numel);
}

std::vector<StatePart> OneBitLamb::state() const {
  std::vector<StatePart> all = joined(joined(m_, v_), v_fresh_);
  for (const auto& of_all : {coefficients_, factors_})
    for (const std::vector<StatePart>& parts : of_all) all = joined(std::move(all), parts);
  return joined(std::move(all), all_reduce_.state());
}

}  // namespace godwit
