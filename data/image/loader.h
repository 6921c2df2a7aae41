// Loader: batches of one rank, prepared in advance by low-priority threads.
#pragma once
#include <memory>
#include <optional>

#include "data/image/image_dataset.h"
#include "data/loader_options.h"
#include "data/prefetcher.h"
#include "engine/tensor.h"

namespace godwit::data {

// Images and labels of one step of a rank.
struct Batch {
  Tensor images;  // [b, h, w, c] float32
  Tensor labels;  // [b] int32
};

// Construct it on the rank's thread: batches are CPU tensors from that rank's memory pool. next() rethrows errors of
// the loader threads. Training images are augmented by (seed, epoch, sample).
class Loader {
 public:
  Loader(const ImageDataset& source, LoaderOptions options);  // keeps a reference to the source

  int64_t batches() const { return sampler_.batches(); }     // batches of this rank per epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // callable at any time; first_batch: where to resume
  std::optional<Batch> next();                               // none at the end of the epoch and before start_epoch()

 private:
  std::shared_ptr<PrefetchJob> make_job();

  const ImageDataset& source_;
  bool train_;
  Sampler sampler_;
  int64_t epoch_ = 0, submitted_ = 0;
  Prefetcher prefetcher_;
};

}  // namespace godwit::data
