// ImageBatches: a loader's batches, with the images on the rank's device.
#pragma once
#include <memory>
#include <optional>

#include "data/image/loader.h"
#include "engine/stream.h"

namespace godwit::apps {

// On a GPU, a dedicated thread and CUDA stream copy the next batch's images during the computation of the current
// batch. Labels stay on the CPU, where they are checked.
class ImageBatches {
 public:
  ImageBatches(const data::ImageDataset& source, const data::LoaderOptions& options);

  int64_t batches() const { return loader_.batches(); }  // number of batches of this rank per epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);
  std::optional<data::Batch> next();  // empty at the end of the epoch; rethrows errors of the loader

 private:
  void fetch();

  data::Loader loader_;
  Shape room_;                        // shape of a full batch of images
  std::optional<data::Batch> ahead_;  // owned by stream_ until the thread has waited for stream_
  std::unique_ptr<Stream> stream_;    // null on the CPU
};

}  // namespace godwit::apps
