// Sampler: the samples of each batch as a pure function of seed, epoch, rank and world size.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace godwit::data {

// Batch size, shard and order of a Sampler.
struct SamplerOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // true: shuffle in each epoch; false: each sample once, in order
};

// Training: each epoch has a permutation p of all samples. Batch k of rank r is p[(k·W + r)·B … + B). The samples of
// the ranks are therefore disjoint, and all ranks have equal numbers of batches. An incomplete global batch at the end
// is dropped. Evaluation: rank r has the contiguous samples [n·r/W, n·(r+1)/W). The last batch may be smaller. If n <
// W, some ranks have no samples.
class Sampler {
 public:
  // Throws if batch < 1, rank is outside [0, world), or a global training batch exceeds the number of samples.
  Sampler(int64_t samples, SamplerOptions options);

  int64_t batches() const { return batches_; }       // number of batches of this rank per epoch
  void start_epoch(int64_t epoch);                   // determines the samples of all batches
  std::span<const uint32_t> batch(int64_t k) const;  // sample indices, valid until start_epoch()
  // Samples in order: for training, the whole permutation p; for evaluation, the rank's samples. Valid until
  // start_epoch().
  std::span<const uint32_t> order() const { return order_; }

 private:
  SamplerOptions options_;
  int64_t batches_ = 0;
  std::vector<uint32_t> order_;
};

}  // namespace godwit::data
