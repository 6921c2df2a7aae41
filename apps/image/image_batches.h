// ImageBatches: a loader's batches, with their images where the rank's kernels run.
#pragma once
#include <memory>
#include <optional>

#include "data/image/loader.h"
#include "engine/stream.h"

namespace godwit::apps {

// On a GPU a thread and a stream of their own copy the next batch's images while kernels work on this one's. Labels
// stay on the CPU, where they are checked.
class ImageBatches {
 public:
  ImageBatches(const data::ImageDataset& source, const data::LoaderOptions& options);

  int64_t batches() const { return loader_.batches(); }  // of this rank in an epoch
  void start_epoch(int64_t epoch);
  std::optional<data::Batch> next();  // none at the end of the epoch; rethrows what went wrong in preparing it

 private:
  void fetch();

  data::Loader loader_;
  Shape room_;                        // of a whole batch's images
  std::optional<data::Batch> ahead_;  // the stream's, until it was waited for
  std::unique_ptr<Stream> stream_;    // null on the CPU
};

}  // namespace godwit::apps
