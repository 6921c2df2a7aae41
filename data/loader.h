// Loader: the batches of one rank, prepared ahead on a thread of its own.
#pragma once
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <optional>

#include "data/image_dataset.h"
#include "data/sampler.h"
#include "data/transform.h"
#include "engine/stream.h"
#include "engine/tensor.h"

namespace godwit::data {

struct Batch {
  Tensor images;  // [b, h, w, c] float32
  Tensor labels;  // [b] int32
};

struct LoaderOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // shuffled and augmented; else in order, every sample once over all ranks
  int64_t pad = 0;    // augmentation, only in training
  bool flip = false;
  std::vector<float> mean = {}, std = {};  // per channel; see TransformOptions
  int prefetch = 2;                        // batches held ready, at least 1
};

// Make it on the rank's thread: batches come from that rank's pool. Errors of the preparing thread come out of next().
class Loader {
 public:
  Loader(const ImageDataset& dataset, LoaderOptions options);  // keeps a reference to the dataset

  int64_t batches() const { return sampler_.batches(); }     // of this rank in an epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // at any time; first_batch: where a resumed epoch goes on
  std::optional<Batch> next();                               // none at the end of the epoch, or before start_epoch()

 private:
  // The error travels as a value: its last owner is then the thread that takes it, which ThreadSanitizer can follow.
  struct Prepared {
    Batch batch;
    std::exception_ptr error;
  };

  void submit();
  Prepared try_prepare(int64_t k) const;
  Batch prepare(int64_t k) const;

  const ImageDataset& dataset_;
  LoaderOptions options_;
  Sampler sampler_;
  Transform transform_;
  int64_t epoch_ = 0, submitted_ = 0;
  std::deque<std::future<Prepared>> ahead_;
  Stream stream_;  // last: its thread ends before what it reads is gone
};

}  // namespace godwit::data
