// Which samples a rank sees in which batch of an epoch: a pure function of seed, epoch, rank and world size.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace godwit::data {

struct SamplerOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;
};

// Training: each epoch has its own permutation p of all samples, and batch k of rank r is p[(k·W + r)·B … + B), so
// ranks are disjoint and have equally many batches; an incomplete global batch at the end is dropped. Evaluation: rank
// r has the contiguous samples [n·r/W, n·(r+1)/W), its last batch may be smaller, and with n < W some ranks have none.
class Sampler {
 public:
  // Throws Error on batch < 1, a rank outside [0, world), and a global training batch larger than the data.
  Sampler(int64_t samples, SamplerOptions options);

  int64_t batches() const { return batches_; }  // of this rank in every epoch
  void start_epoch(int64_t epoch);
  std::span<const uint32_t> batch(int64_t k) const;  // sample indices, valid until start_epoch()
  // All of p in training, the rank's samples in evaluation; valid until start_epoch().
  std::span<const uint32_t> order() const { return order_; }

 private:
  SamplerOptions options_;
  int64_t batches_ = 0;
  std::vector<uint32_t> order_;
};

}  // namespace godwit::data
