// Loader: the batches of one rank, which low-priority threads prepare in advance.
#pragma once
#include <optional>

#include "data/image/image_dataset.h"
#include "data/loader_options.h"
#include "data/prefetcher.h"
#include "engine/tensor.h"

namespace godwit::data {

// Images and labels of one rank for one step.
struct Batch {
  Tensor images;  // [b, h, w, c] float32
  Tensor labels;  // [b] int32
};

// Must be constructed on the rank's thread, because batches are CPU tensors from that rank's memory pool. next()
// rethrows errors of the loader threads. Augmentation of training images depends only on (seed, epoch, sample).
class Loader {
 public:
  Loader(const ImageDataset& dataset, LoaderOptions options);  // keeps a reference to the dataset

  int64_t batches() const { return sampler_.batches(); }     // number of batches of this rank per epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // may be called at any time; first_batch: where to resume
  std::optional<Batch> next();                               // empty at the end of the epoch and before start_epoch()

 private:
  const ImageDataset& source_;
  bool train_;
  Sampler sampler_;
  int64_t epoch_ = 0, submitted_ = 0;
  Prefetcher prefetcher_;
};

}  // namespace godwit::data
