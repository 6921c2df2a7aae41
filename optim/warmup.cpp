#include "optim/warmup.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/exchange/half_mean.h"
#include "engine/data_ptr.h"
#include "engine/update_each.h"
#include "optim/clip.h"
#include "optim/kernels/one_bit_kernels.h"

namespace godwit {
namespace {

constexpr double kSettled = 0.96;       // bound of a change of ‖v̂‖₁, and its reciprocal
constexpr double kSettledShare = 0.99;  // of all values, in tensors that have settled
constexpr double kOutgrown = 4;         // ‖ĝ‖²/‖v̂‖₁ from which on v̂ is refreshed

std::vector<double> squares_of_slots(const Bucket& bucket, const Tensor& g) {
  std::vector<Segment> ranges;
  for (const Slot& slot : bucket.slots) ranges.push_back({slot.offset, slot.offset + slot.numel});
  return on_device(g, [&](auto device) { return detail::sums_of_squares(device, g, ranges); });
}

bool has_settled(double change) { return change >= kSettled && change <= 1 / kSettled; }

}  // namespace

void dense_mean(Group& world, const Tensor& x, DenseWire wire, const std::string& purpose) {
  if (wire == DenseWire::f32 || world.size() == 1)
    return world.all_reduce(x, Reduce::mean, purpose + "_all_reduce");
  half_mean(world, x, wire == DenseWire::bf16 ? DType::bf16 : DType::f16, world.size(), purpose.c_str(),
            (purpose + "_all_to_all").c_str(), (purpose + "_all_gather").c_str());
}

VarianceFreeze::VarianceFreeze(const char* name, WarmupEnd end, int64_t limit, double beta2, bool refresh,
                               const Buckets& buckets)
    : name_(name), end_(end), limit_(limit), beta2_(beta2), refresh_(refresh) {
  for (const Bucket& bucket : buckets) {
    first_slot_.push_back(names_.size());
    for (const Slot& slot : bucket.slots) names_.push_back(slot.name), sizes_.push_back(slot.numel);
  }
  norms_.assign(names_.size(), 0);
}

bool VarianceFreeze::warming_up(int64_t step) {
  if (step != step_ && frozen_at_ == 0 && step_ > 0) {
    const bool ended = end_ == WarmupEnd::automatic && settled();
    if (ended || step > limit_) {
      frozen_at_ = step_, event_step_ = step;
      event_ = detail::concat(name_, ": the warm-up ended after step ", step_,
                              ended ? ", because the second moments have settled"
                                    : end_ == WarmupEnd::fixed ? "" : ", its limit; " + unsettled());
      snapshots_.clear();
    }
  }
  step_ = step;
  return frozen_at_ == 0;
}

bool VarianceFreeze::refreshes(int64_t step) const {
  if (!refresh_ || frozen_at_ == 0) return false;
  const int64_t h = std::max<int64_t>(frozen_at_ / 4, 1), after = step - frozen_at_;
  return after > 0 && after % h == 0 && ((after / h + 1) & (after / h)) == 0;  // after/h is 2ʲ − 1
}

void VarianceFreeze::measure(const Bucket& bucket) {
  const std::vector<double> squares = squares_of_slots(bucket, bucket.grad);
  for (size_t s = 0; s < squares.size(); ++s) {
    double& norm = norms_[first_slot_[static_cast<size_t>(bucket.index)] + s];
    if (std::isfinite(squares[s])) norm = beta2_ * norm + (1 - beta2_) * squares[s];
  }
}

std::vector<double> VarianceFreeze::growth(const Bucket& bucket, const Tensor& g) {
  const double correction = 1 - std::pow(beta2_, static_cast<double>(frozen_at_));
  std::vector<double> factors = squares_of_slots(bucket, g);
  for (size_t s = 0; s < factors.size(); ++s) {
    double& norm = norms_[first_slot_[static_cast<size_t>(bucket.index)] + s];
    const double ratio = norm > 0 ? factors[s] * correction / norm : 1;
    factors[s] = ratio > kOutgrown && std::isfinite(ratio) ? ratio : 1;
    norm *= factors[s];
  }
  return factors;
}

void refresh_variance(VarianceFreeze& freeze, const Bucket& bucket, const std::vector<Tensor>& variances,
                      double correction, Group& world, DenseWire wire, const std::string& purpose) {
  const Tensor mean = bucket.grad.clone();
  dense_mean(world, mean, wire, purpose);
  const std::vector<double> factors = freeze.growth(bucket, mean);
  on_device(mean, [&](auto device) {
    const float* g = data_ptr<float>(device, mean);
    for (size_t s = 0; s < bucket.slots.size(); ++s) {
      const one_bit::VarianceRefresh refresh{static_cast<float>(factors[s]), static_cast<float>(correction)};
      const int64_t begin = bucket.slots[s].offset, end = begin + bucket.slots[s].numel;
      for (const Tensor& v : variances)
        update_each(device, "refresh", begin, end, refresh, data_ptr<float>(device, v), g);
    }
  });
}

// Tests the criterion after step_.
bool VarianceFreeze::settled() {
  const int64_t delta = std::llround(1 / (1 - beta2_)), every = std::max<int64_t>(delta / 10, 1);
  if (step_ % every != 0) return false;
  std::vector<double> corrected = norms_;
  for (double& norm : corrected) norm /= 1 - std::pow(beta2_, static_cast<double>(step_));
  snapshots_.push_back(std::move(corrected));
  if (static_cast<int64_t>(snapshots_.size()) <= delta / every) return false;
  int64_t in_settled = 0;
  changes_.resize(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    const double before = snapshots_.front()[i], now = snapshots_.back()[i];
    changes_[i] = before > 0 ? now / before : now > 0 ? std::numeric_limits<double>::infinity() : 1;
    if (has_settled(changes_[i])) in_settled += sizes_[i];
  }
  snapshots_.pop_front();
  const auto all = std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
  return static_cast<double>(in_settled) >= kSettledShare * static_cast<double>(all);
}

// Why the limit ended the warm-up.
std::string VarianceFreeze::unsettled() const {
  const auto delta = std::llround(1 / (1 - beta2_));
  if (changes_.empty())
    return detail::concat("it was too short to tell whether the second moments have settled, which takes more than ",
                          delta, " steps");
  std::vector<size_t> order;
  for (size_t i = 0; i < names_.size(); ++i)
    if (!has_settled(changes_[i])) order.push_back(i);
  const auto change = [&](size_t i) { return std::abs(std::log(changes_[i])); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return change(a) > change(b); });
  std::string text = "these second moments still changed over " + std::to_string(delta) + " steps:";
  constexpr size_t kShown = 3;
  for (size_t k = 0; k < std::min(order.size(), kShown); ++k)
    text += detail::concat(k > 0 ? ", " : " ", names_[order[k]], " (", std::round(100 * changes_[order[k]]) / 100,
                           " times)");
  if (order.size() > kShown) text += detail::concat(" and ", order.size() - kShown, " more");
  return text;
}

int64_t warmup_of_run(const std::string& name, double fraction, int64_t warmup_steps, int64_t steps,
                      int64_t least_after, const std::string& what) {
  if (warmup_steps == 0 && fraction > 0)
    warmup_steps = std::max<int64_t>(std::llround(fraction * static_cast<double>(steps)), 1);
  check(warmup_steps <= steps - least_after, name, ": a warm-up of ", warmup_steps, " steps leaves nothing to ", what,
        " of a run of ", steps, "; lower optimizer.warmup_steps or optimizer.warmup_fraction, or train longer");
  return warmup_steps;
}

void check_warmup_in_steps(const std::string& name, double fraction, int64_t warmup_steps) {
  check(warmup_steps > 0 || fraction == 0, name, ": the length of the run is unknown, so warmup_fraction ", fraction,
        " has no length in steps; set warmup_steps, or call for_run()");
}

void check_warmup_given(const std::string& name, double fraction, int64_t warmup_steps) {
  check_warmup_in_steps(name, fraction, warmup_steps);
  check(warmup_steps > 0, name, ": needs a warm-up, in which the variance forms; set warmup_steps or warmup_fraction");
}

std::vector<std::string> frozen_variance_notices(const std::string& name, double beta2, int64_t changes) {
  const double held = 1 - std::pow(beta2, static_cast<double>(changes));
  if (changes == 0 || held >= 0.1) return {};
  return {detail::concat(name, " freezes its second moment after ", changes, " changes, at ",
                         std::round(1000 * held) / 10, " % of g², so its steps are ",
                         std::round(10 / std::sqrt(held)) / 10,
                         " times as long as Adam's, and longer where gradients are rare; raise "
                         "optimizer.warmup_fraction, or train longer")};
}

std::string long_steps_hint(const std::string& name) {
  return name +
         " takes longer steps than Adam, the more so in short runs and where gradients are rare: lower --lr, "
         "raise optimizer.warmup_fraction, or set optimizer.block_size to the length of a row";
}

}  // namespace godwit
