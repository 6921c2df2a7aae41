// Loader: the batches of one rank, prepared ahead by a few threads of low priority.
#pragma once
#include <memory>
#include <optional>

#include "data/image/image_dataset.h"
#include "data/loader_options.h"
#include "data/prefetcher.h"
#include "engine/tensor.h"

namespace godwit::data {

struct Batch {
  Tensor images;  // [b, h, w, c] float32
  Tensor labels;  // [b] int32
};

// Make it on the rank's thread: batches, on the CPU, come from that rank's pool. Errors of the preparing threads come
// out of next(). In training every image is augmented, as drawn for the epoch.
class Loader {
 public:
  Loader(const ImageDataset& source, LoaderOptions options);  // keeps a reference to the source

  int64_t batches() const { return sampler_.batches(); }     // of this rank in an epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // at any time; first_batch: where a resumed epoch goes on
  std::optional<Batch> next();                               // none at the end of the epoch, or before start_epoch()

 private:
  std::shared_ptr<PrefetchJob> make_job();

  const ImageDataset& source_;
  bool train_;
  Sampler sampler_;
  int64_t epoch_ = 0, submitted_ = 0;
  Prefetcher prefetcher_;
};

}  // namespace godwit::data
