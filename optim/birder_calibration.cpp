#include "optim/birder_calibration.h"

#include <algorithm>
#include <cmath>

#include "comm/compress/wire/gather_scatter.h"
#include "engine/data_ptr.h"
#include "engine/philox.h"

namespace godwit::birder {
namespace {

constexpr int64_t kFewest = 64;  // values of a sample
constexpr double kMemory = 0.8;  // decay rate of the moving averages

// Offsets of a sample of a parameter's values. All ranks draw the same.
std::vector<int64_t> sample(const Slot& slot, int64_t element, double share, uint64_t seed, int64_t step) {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(slot.numel)));
  const int64_t count = std::min(slot.numel, std::max(wanted, kFewest));
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    const uint32_t word = random_word(seed, element + k, static_cast<uint32_t>(step), Purpose::coordinates, 0);
    const auto n = static_cast<uint64_t>(slot.numel);
    offsets[static_cast<size_t>(k)] = count == slot.numel ? k : static_cast<int64_t>((word * n) >> 32);
  }
  return offsets;
}

void gather_values(Cpu, const Tensor& x, const std::vector<int64_t>& places, const Tensor& values) {
  for (size_t i = 0; i < places.size(); ++i) values.data<float>()[i] = x.data<float>()[places[i]];
}

[[maybe_unused]] void gather_values(Cuda device, const Tensor& x, const std::vector<int64_t>& places,
                                    const Tensor& values) {
  gather(device, Tensor::of(places, values.shape()), x, false, values);
}

Tensor values_at(const Tensor& x, const std::vector<int64_t>& places) {
  const Tensor values({static_cast<int64_t>(places.size())});
  on_device(x, [&](auto device) { gather_values(device, x, places, values); });
  return values;
}

float& value_of(const StateTensor& part) { return part.values.data<float>()[0]; }

}  // namespace

Calibration::Calibration(int64_t interval, double share, int nodes, uint64_t seed, const Buckets& buckets,
                         const std::vector<Segment>& ranges)
    : interval_(interval), share_(share), limit_(std::sqrt(static_cast<double>(nodes))), seed_(seed) {
  for (const Bucket& bucket : buckets) {
    BucketState state;
    state.range = ranges.at(static_cast<size_t>(bucket.index));
    state.factors = Tensor::full({state.range.numel()}, 1);
    for (const Slot& slot : bucket.slots) {
      const auto one = [&](const char* name) {
        const Tensor sum({std::min<int64_t>(slot.numel, 1)}, DType::f32, kCpu);
        sum.fill(0);
        return StateTensor{name, bucket.begin + slot.offset, sum, false};
      };
      state.own.push_back(one("calibration_own"));
      state.mean.push_back(one("calibration_mean"));
    }
    states_.push_back(std::move(state));
  }
}

void Calibration::update(const Bucket& bucket, const Tensor& gradient, Group& nodes, Group* within, int64_t step) {
  if ((step - 1) % interval_ != 0) return;
  BucketState& state = states_.at(static_cast<size_t>(bucket.index));
  std::vector<int64_t> counts, places, indices;  // places: in the range; indices: of these in the whole sample
  int64_t total = 0;
  for (const Slot& slot : bucket.slots) {
    const std::vector<int64_t> offsets = sample(slot, bucket.begin + slot.offset, share_, seed_, step);
    for (const int64_t offset : offsets) {
      const int64_t at = slot.offset + offset;
      if (at >= state.range.begin && at < state.range.end) {
        places.push_back(at - state.range.begin);
        indices.push_back(total);
      }
      ++total;
    }
    counts.push_back(static_cast<int64_t>(offsets.size()));
  }
  std::vector<float> sums(static_cast<size_t>(2 * total));  // gᵢ, then ḡ, of the whole sample
  if (!places.empty()) {
    const Tensor own = values_at(gradient, places), mean = own.clone();
    nodes.all_reduce(mean, Reduce::mean, "birder/calibration_all_reduce");
    const Tensor own_here = own.to(kCpu), mean_here = mean.to(kCpu);
    for (size_t i = 0; i < places.size(); ++i) {
      sums[static_cast<size_t>(indices[i])] = own_here.data<float>()[i];
      sums[static_cast<size_t>(total + indices[i])] = mean_here.data<float>()[i];
    }
  }
  if (within && within->size() > 1) {  // each value comes from one rank, so the sum is exact
    const Tensor all = Tensor::of(sums, {2 * total});
    within->all_reduce(all, Reduce::sum, "birder/calibration_intra_all_reduce");
    const Tensor here = all.to(kCpu);
    std::copy_n(here.data<float>(), 2 * total, sums.begin());
  }
  const float* from = sums.data();
  for (size_t s = 0; s < counts.size(); ++s) {
    double own = 0, mean = 0;
    for (int64_t i = 0; i < counts[s]; ++i, ++from) own += std::abs(*from), mean += std::abs(from[total]);
    if (counts[s] == 0 || !std::isfinite(own) || !std::isfinite(mean)) continue;  // not finite: the step will fail
    for (const auto& [sum, part] : {std::pair{own, &state.own[s]}, {mean, &state.mean[s]}})
      value_of(*part) = static_cast<float>(kMemory * value_of(*part) + (1 - kMemory) * sum);
  }
  state.filled = false;
}

const Tensor& Calibration::factors(const Bucket& bucket) {
  BucketState& state = states_.at(static_cast<size_t>(bucket.index));
  if (!state.filled) fill(bucket, state);
  state.filled = true;
  return state.factors;
}

void Calibration::fill(const Bucket& bucket, BucketState& state) const {
  for (size_t s = 0; s < bucket.slots.size(); ++s) {
    const Slot& slot = bucket.slots[s];
    const int64_t begin = std::max(slot.offset, state.range.begin);
    const int64_t end = std::min(slot.offset + slot.numel, state.range.end);
    if (begin >= end) continue;
    const double own = value_of(state.own[s]), mean = value_of(state.mean[s]);
    const double factor = mean > 0 ? std::clamp(own / mean, 1 / limit_, limit_) : 1;
    state.factors.range(begin - state.range.begin, end - begin).fill(factor);
  }
}

std::vector<StateTensor> Calibration::state() const {
  std::vector<StateTensor> all;
  for (const BucketState& state : states_)
    for (const auto& parts : {state.own, state.mean}) all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

}  // namespace godwit::birder
