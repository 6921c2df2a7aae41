#include "optim/variance_freeze.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "engine/data_ptr.h"
#include "engine/hash.h"
#include "engine/update_each.h"
#include "optim/clip.h"
#include "optim/kernels/one_bit_kernels.h"

namespace godwit {
namespace {

constexpr double kSettled = 0.96;        // v̂ has settled if ‖v̂‖₁ changes by a factor from kSettled to 1/kSettled
constexpr double kSettledShare = 0.99;   // required share of all values in settled tensors
constexpr double kOutgrown = 4;          // v̂ is outgrown if ‖ĝ‖²/‖v̂‖₁ is larger
constexpr double kLargestWeight = 0.5;   // largest weight of one batch's ‖ĝ‖² in ‖v̂‖₁, unless v̂ is outgrown
constexpr double kLargestFactor = 1e30;  // largest factor on v; fits in float32
constexpr double kFromZero = std::numeric_limits<double>::max();  // change of ‖v̂‖₁ from 0; a checkpoint cannot hold ∞

std::vector<double> squares_of_slots(const Bucket& bucket, const Tensor& g) {
  std::vector<Segment> ranges;
  for (const Slot& slot : bucket.slots) ranges.push_back({slot.offset, slot.offset + slot.numel});
  return on_device(g, [&](auto device) { return detail::sums_of_squares(device, g, ranges); });
}

bool has_settled(double change) { return change >= kSettled && change <= 1 / kSettled; }

std::string change_text(double change) {
  return change == kFromZero ? "from 0" : detail::concat(std::round(100 * change) / 100, " times");
}

}  // namespace

VarianceFreeze::VarianceFreeze(const char* name, WarmupEnd end, int64_t limit, double beta2, Refresh refresh,
                               const Buckets& buckets, std::shared_ptr<Group> shards)
    : name_(name), end_(end), limit_(limit), beta2_(beta2), refresh_(refresh), shards_(std::move(shards)) {
  for (const Bucket& bucket : buckets) {
    first_slot_.push_back(names_.size());
    for (const Slot& slot : bucket.slots) {
      names_.push_back(slot.name);
      ranges_.push_back({slot.offset, slot.offset + slot.numel});
    }
  }
  norms_.assign(names_.size(), 0);
  Hash hash;
  for (const std::string& slot : names_) hash.add(slot);
  // Shards may divide a parameter.
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots)
      if (shards_) hash.add(bucket.begin + slot.offset), hash.add(slot.numel);
  slots_hash_ = static_cast<double>(hash.value() >> 11);
}

bool VarianceFreeze::warming_up(int64_t step) {
  if (step != step_ && frozen_at_ == 0 && step_ > 0) {
    const bool ended = end_ == WarmupEnd::automatic && settled();
    if (ended || step > limit_) {
      frozen_at_ = step_, event_step_ = step;
      event_ = detail::concat(name_, ": the warm-up ended after step ", step_,
                              ended                      ? ", because the second moments have settled"
                              : end_ == WarmupEnd::fixed ? ""
                                                         : ", its limit; " + unsettled());
      snapshots_.clear();
    }
  }
  step_ = step;
  return frozen_at_ == 0;
}

bool VarianceFreeze::refreshes(int64_t step) const {
  return refresh_ != Refresh::off && frozen_at_ > 0 && has_refresh(frozen_at_, refresh_interval(), step, step);
}

// The weight in Adam's v̂ of the steps since the last refresh before step_, or since the end of the warm-up.
double VarianceFreeze::refresh_weight() const {
  const int64_t h = refresh_interval(), before = frozen_at_ + ((step_ - frozen_at_) / h - 1) / 2 * h;
  return held(step_ - before) / held(step_);
}

void VarianceFreeze::measure(const Bucket& bucket) {
  const std::vector<double> squares = squares_of_slots(bucket, bucket.grad);
  for (size_t s = 0; s < squares.size(); ++s) {
    double& norm = norms_[first_slot_[static_cast<size_t>(bucket.index)] + s];
    if (std::isfinite(squares[s])) norm = beta2_ * norm + (1 - beta2_) * squares[s];
  }
}

std::vector<double> VarianceFreeze::growth(const Bucket& bucket, const Tensor& g, const Tensor& v,
                                           double late_correction) {
  const double correction = held(frozen_at_);
  const double weight = refresh_ == Refresh::follow ? std::min(refresh_weight(), kLargestWeight) : 0;
  const std::vector<double> all = squares_of_slots(bucket, g);
  const Tensor masked = g.clone();
  on_device(g, [&](auto device) {
    float* to = data_ptr<float>(device, masked);
    const float *from = data_ptr<float>(device, g), *where = data_ptr<float>(device, v);
    update_each(device, "refresh", 0, bucket.numel, one_bit::WhereNotZero{}, to, from, where);
  });
  std::vector<double> factors = squares_of_slots(bucket, masked);
  for (size_t s = 0; s < factors.size(); ++s) {
    double& norm = norms_[first_slot_[static_cast<size_t>(bucket.index)] + s];
    const double squares = factors[s], ratio = norm > 0 ? squares * correction / norm : 1;
    if (!std::isfinite(ratio)) factors[s] = 1;
    else factors[s] = ratio > kOutgrown ? std::min(ratio, kLargestFactor) : 1 - weight + weight * ratio;
    norm *= factors[s];
    if (std::isfinite(all[s])) norm += correction / late_correction * (all[s] - squares);
  }
  return factors;
}

void refresh_variance(VarianceFreeze& freeze, const LateVariance& late, const Bucket& bucket, const Tensor& v,
                      const Tensor& mean, double correction) {
  const std::vector<double> factors = freeze.growth(bucket, mean, v, late.correction());
  fill_variance(bucket, v, mean, correction / late.correction(), factors);
}

void fill_variance(const Bucket& bucket, const Tensor& v, const Tensor& g, double correction,
                   const std::vector<double>& factors) {
  on_device(g, [&](auto device) {
    for (size_t s = 0; s < bucket.slots.size(); ++s) {
      const one_bit::VarianceRefresh refresh{factors.empty() ? 1 : static_cast<float>(factors[s]),
                                             static_cast<float>(correction)};
      const int64_t begin = bucket.slots[s].offset, end = begin + bucket.slots[s].numel;
      const float* from = data_ptr<float>(device, g);
      update_each(device, "refresh", begin, end, refresh, data_ptr<float>(device, v), from);
    }
  });
}

std::vector<double> VarianceFreeze::counters() const {
  std::vector<double> all{static_cast<double>(step_), static_cast<double>(frozen_at_),
                          static_cast<double>(snapshots_.size()), changes_.empty() ? 0.0 : 1.0};
  const auto add = [&](const std::vector<double>& values) { all.insert(all.end(), values.begin(), values.end()); };
  add(norms_);
  for (const std::vector<double>& snapshot : snapshots_) add(snapshot);
  add(changes_);
  all.push_back(slots_hash_);
  return all;
}

void VarianceFreeze::restore(const std::vector<double>& counters, const std::vector<StateTensor>& v) {
  const size_t n = names_.size();
  constexpr double kMost = 1e6;  // more snapshots than any run has
  const bool sane = counters.size() >= 4 && std::abs(counters[0]) < 0x1p53 && std::abs(counters[1]) < 0x1p53 &&
                    counters[2] >= 0 && counters[2] < kMost && counters[3] >= 0 && counters[3] <= 1;
  const size_t size = sane ? 4 + (1 + static_cast<size_t>(counters[2]) + static_cast<size_t>(counters[3])) * n : 0;
  check(sane, name_, ": the checkpoint has invalid counters; resume from another checkpoint");
  step_ = std::llround(counters[0]), frozen_at_ = std::llround(counters[1]);
  snapshots_.clear(), changes_.clear(), event_.clear();
  event_step_ = 0;
  // Older checkpoints do not have the hash.
  if (counters.size() != size && (counters.size() != size + 1 || counters.back() != slots_hash_)) {
    check(shards_ != nullptr, name_, ": the checkpoint has the norms of other parameters; resume with the same model");
    return measure_norms(v);
  }
  auto at = counters.begin() + 4;
  const auto take = [&] {
    const std::vector<double> values(at, at + static_cast<int64_t>(n));
    at += static_cast<int64_t>(n);
    return values;
  };
  norms_ = take();
  for (size_t i = 0; i < static_cast<size_t>(counters[2]); ++i) snapshots_.push_back(take());
  if (counters[3] > 0) changes_ = take();
}

// Sets the norms to the sums of v.
void VarianceFreeze::measure_norms(const std::vector<StateTensor>& v) {
  for (size_t bucket = 0; bucket < first_slot_.size(); ++bucket) {
    const Tensor values = v[bucket].values.to(kCpu);
    const size_t end = bucket + 1 < first_slot_.size() ? first_slot_[bucket + 1] : norms_.size();
    for (size_t s = first_slot_[bucket]; s < end; ++s) {
      const float *from = values.data<float>() + ranges_[s].begin, *to = values.data<float>() + ranges_[s].end;
      norms_[s] = std::accumulate(from, to, 0.0);
    }
  }
}

// Tests the criterion after step_.
bool VarianceFreeze::settled() {
  const int64_t delta = std::llround(1 / (1 - beta2_)), every = std::max<int64_t>(delta / 10, 1);
  if (step_ % every != 0) return false;
  std::vector<double> corrected = norms_;
  for (double& norm : corrected) norm /= 1 - std::pow(beta2_, static_cast<double>(step_));
  snapshots_.push_back(std::move(corrected));
  double waiting = 1, in_settled = 0, all = 0;  // waiting: ranks that need more steps before the first test
  if (static_cast<int64_t>(snapshots_.size()) > delta / every) {
    waiting = 0;
    changes_.resize(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      const double before = snapshots_.front()[i], now = snapshots_.back()[i];
      changes_[i] = before > 0 ? std::min(now / before, kFromZero) : now > 0 ? kFromZero : 1;
      const auto values = static_cast<double>(ranges_[i].numel());
      all += values;
      if (has_settled(changes_[i])) in_settled += values;
    }
    snapshots_.pop_front();
  }
  if (shards_) {
    const Tensor sums = cpu_tensor<double>({waiting, in_settled, all});
    shards_->all_reduce(sums, Reduce::sum, name_ + "/settled");
    waiting = sums.item(0), in_settled = sums.item(1), all = sums.item(2);
  }
  return waiting == 0 && in_settled >= kSettledShare * all;
}

// Reason why the warm-up lasted until its limit.
std::string VarianceFreeze::unsettled() const {
  std::vector<std::string> own;  // for each tensor that has not settled: text and |log of the change|
  for (size_t i = 0; i < changes_.size(); ++i)
    if (!has_settled(changes_[i]))
      own.insert(own.end(),
                 {names_[i] + " (" + change_text(changes_[i]) + ")", std::to_string(std::abs(std::log(changes_[i])))});
  std::vector<std::vector<std::string>> ranks{own};
  if (shards_) ranks = gather_texts(*shards_, own, name_ + "/unsettled");
  std::vector<std::pair<double, std::string>> changes;
  for (const std::vector<std::string>& of_rank : ranks)
    for (size_t i = 0; i < of_rank.size(); i += 2) changes.emplace_back(std::stod(of_rank[i + 1]), of_rank[i]);
  const auto delta = std::llround(1 / (1 - beta2_));
  if (changes.empty())
    return detail::concat("it was too short to tell whether the second moments have settled, which takes ",
                          delta + std::max<int64_t>(delta / 10, 1), " steps");
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = "these second moments still changed over " + std::to_string(delta) + " steps:";
  constexpr size_t kShown = 3;
  for (size_t k = 0; k < std::min(changes.size(), kShown); ++k) text += (k > 0 ? ", " : " ") + changes[k].second;
  if (changes.size() > kShown) text += detail::concat(" and ", changes.size() - kShown, " more");
  return text;
}

}  // namespace godwit
