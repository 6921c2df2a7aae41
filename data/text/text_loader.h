// TextLoader: batches of text of one rank, each padded to its longest sample, prepared ahead.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "data/text/length_sampler.h"
#include "data/loader_options.h"
#include "data/prefetcher.h"
#include "data/text/text_dataset.h"
#include "engine/tensor.h"

namespace godwit::data {

// l is the longest sample's length, rounded up to a multiple of 8 (but not past the source's max_length). Tensors the
// source has no targets for are undefined.
struct TextBatch {
  Tensor ids, types;                       // [b, l] int32; padding is the pad id, of type 0
  Tensor mask;                             // [b, l] uint8, 1 = a token
  Tensor labels;                           // [b] int32: class, or next sentence (0 = it is the next)
  Tensor starts, ends;                     // [b] int32: first and last token of the answer, 0 where it is not there
  Tensor masked_positions, masked_labels;  // [m] int32: positions count through b·l
  std::vector<int64_t> samples;            // [b], indices into the source
};

// Make it on the rank's thread: batches, on the CPU, come from that rank's pool. Errors of the preparing threads come
// out of next(). Evaluation draws every sample as in epoch 0.
class TextLoader {
 public:
  // Keeps a reference to the source; window: batches that are sorted by length together, see LengthSampler.
  TextLoader(const TextDataset& source, LoaderOptions options, int64_t window = 64);

  int64_t batches() const { return sampler_.batches(); }     // of this rank in an epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // at any time; first_batch: where a resumed epoch goes on
  std::optional<TextBatch> next();                           // none at the end of the epoch, or before start_epoch()

 private:
  std::shared_ptr<PrefetchJob> make_job();

  const TextDataset& source_;
  bool train_;
  LengthSampler sampler_;
  int64_t epoch_ = 0, submitted_ = 0;
  Prefetcher prefetcher_;
};

}  // namespace godwit::data
