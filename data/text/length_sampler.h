// LengthSampler: a Sampler whose batches hold samples of similar length, so that little of them is padding.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/sampler.h"

namespace godwit::data {

// Training: Sampler's permutation is cut into windows of `window` global batches; within each the samples are sorted by
// length and dealt out in order, B·W to a global batch, one in W to each rank, so that ranks wait little for each
// other; then the global batches of the window are shuffled. A global batch holds the same samples whatever the number
// of ranks. Evaluation: Sampler's samples of the rank, the longest first.
class LengthSampler {
 public:
  LengthSampler(int64_t samples, SamplerOptions options, int64_t window);  // throws as Sampler, and on window < 1

  int64_t batches() const { return sampler_.batches(); }
  // `length` of a sample, called once for each that has a place in the epoch.
  void start_epoch(int64_t epoch, const std::function<int64_t(int64_t sample)>& length);
  std::span<const uint32_t> batch(int64_t k) const;  // sample indices, valid until start_epoch()

 private:
  struct Item {
    uint32_t sample;
    int64_t length;
  };
  void deal(std::span<Item> window, int64_t first_batch, int64_t epoch);

  SamplerOptions options_;
  int64_t window_;
  Sampler sampler_;
  std::vector<uint32_t> mine_;  // the rank's, batch after batch
};

}  // namespace godwit::data
