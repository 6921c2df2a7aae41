// LengthSampler: a Sampler that groups samples of similar length into batches to reduce padding.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/sampler.h"

namespace godwit::data {

// Training: splits the Sampler's permutation into windows of `window` global batches and sorts the samples of each
// window by length. Each run of B·W consecutive samples forms a global batch. Its samples are assigned to the ranks in
// turn, so that all ranks get similar lengths. The global batches of the window are then shuffled. The samples of a
// global batch depend only on B·W and not on the number of ranks. Evaluation: the rank's samples, longest first.
class LengthSampler {
 public:
  LengthSampler(int64_t samples, SamplerOptions options, int64_t window);  // throws like Sampler, and if window < 1

  int64_t batches() const { return sampler_.batches(); }  // see Sampler::batches()
  // Determines the batches of an epoch. Calls `length` once per sample.
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
  std::vector<uint32_t> mine_;  // the rank's samples, batch by batch
};

}  // namespace godwit::data
