#include "data/text/length_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/check.h"
#include "engine/philox.h"

namespace godwit::data {

LengthSampler::LengthSampler(int64_t samples, SamplerOptions options, int64_t window)
    : options_(options), window_(window), sampler_(samples, options) {
  check(window >= 1, "loader: a window of ", window, " batches to sort by length, expected at least 1");
}

void LengthSampler::start_epoch(int64_t epoch, const std::function<int64_t(int64_t)>& length) {
  sampler_.start_epoch(epoch);
  const int64_t global = options_.batch * options_.world;
  const auto order =
      options_.train ? sampler_.order().first(static_cast<size_t>(batches() * global)) : sampler_.order();
  std::vector<Item> items;
  items.reserve(order.size());
  for (uint32_t sample : order) items.push_back({sample, length(sample)});
  mine_.resize(options_.train ? order.size() / static_cast<size_t>(options_.world) : order.size());
  if (options_.train) {
    for (int64_t first = 0; first < batches(); first += window_) {
      const int64_t count = std::min(window_, batches() - first) * global;
      deal(std::span(items).subspan(static_cast<size_t>(first * global), static_cast<size_t>(count)), first, epoch);
    }
  } else {
    std::ranges::stable_sort(items, std::greater(), &Item::length);
    std::ranges::transform(items, mine_.begin(), &Item::sample);
  }
}

void LengthSampler::deal(std::span<Item> window, int64_t first_batch, int64_t epoch) {
  std::ranges::stable_sort(window, std::greater(), &Item::length);
  const auto world = static_cast<size_t>(options_.world), batch = static_cast<size_t>(options_.batch);
  std::vector<size_t> place(window.size() / (batch * world));  // target of each global batch
  std::iota(place.begin(), place.end(), static_cast<size_t>(first_batch));
  RandomStream random(options_.seed, Purpose::shuffle, static_cast<uint32_t>(epoch),
                      static_cast<uint32_t>(1 + first_batch / window_));  // index 0 is used by Sampler
  for (size_t left = place.size(); left > 1; --left)
    std::swap(place[left - 1], place[random.below(static_cast<uint32_t>(left))]);
  for (size_t g = 0; g < place.size(); ++g)
    for (size_t i = 0; i < batch; ++i)
      mine_[place[g] * batch + i] = window[(g * batch + i) * world + static_cast<size_t>(options_.rank)].sample;
}

std::span<const uint32_t> LengthSampler::batch(int64_t k) const {
  check(k >= 0 && k < batches() && !mine_.empty(), "sampler: batch ", k, " of ", mine_.empty() ? 0 : batches());
  const int64_t begin = k * options_.batch;
  const int64_t count = std::min(options_.batch, static_cast<int64_t>(mine_.size()) - begin);
  return std::span(mine_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace godwit::data
