#include "data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/check.h"
#include "engine/philox.h"

namespace godwit::data {

Sampler::Sampler(int64_t samples, SamplerOptions options) : options_(options) {
  const auto [batch, rank, world, seed, train] = options;
  check(batch >= 1, "batch: ", batch, " samples per worker, expected at least 1");
  check(world >= 1 && rank >= 0 && rank < world, "sampler: rank ", rank, " of ", world, " workers");
  check(samples >= 0 && samples <= std::numeric_limits<uint32_t>::max(), "sampler: ", samples, " samples");
  if (train) {
    check(samples > 0, "sampler: the training data is empty");
    check(world <= samples, world, " workers share ", samples,
          " training samples; use fewer workers (--nodes, --workers-per-node)");
    check(batch <= samples / world, "batch: ", batch, " per worker on ", world,
          " workers is a global batch larger than the ", samples, " training samples; lower --batch to at most ",
          samples / world, " or use fewer workers");
    batches_ = samples / (batch * world);
    order_.resize(static_cast<size_t>(samples));
  } else {
    const int64_t begin = samples * rank / world, end = samples * (rank + 1) / world;
    batches_ = (end - begin) / batch + ((end - begin) % batch != 0);
    order_.resize(static_cast<size_t>(end - begin));
    std::iota(order_.begin(), order_.end(), static_cast<uint32_t>(begin));
  }
  start_epoch(0);
}

void Sampler::start_epoch(int64_t epoch) {
  check(epoch >= 0 && epoch <= std::numeric_limits<uint32_t>::max(), "sampler: epoch ", epoch);
  if (!options_.train) return;
  std::iota(order_.begin(), order_.end(), 0u);
  RandomStream random(options_.seed, Purpose::shuffle, static_cast<uint32_t>(epoch));
  for (size_t left = order_.size(); left > 1; --left)
    std::swap(order_[left - 1], order_[random.below(static_cast<uint32_t>(left))]);
}

std::span<const uint32_t> Sampler::batch(int64_t k) const {
  check(k >= 0 && k < batches_, "sampler: batch ", k, " of ", batches_);
  const int64_t slot = options_.train ? k * options_.world + options_.rank : k;
  const int64_t begin = slot * options_.batch;
  const int64_t count = std::min(options_.batch, static_cast<int64_t>(order_.size()) - begin);
  return std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace godwit::data
