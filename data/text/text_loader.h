// TextLoader: the text batches of one rank, padded to the longest sample of the batch and prefetched.
#pragma once
#include <optional>
#include <vector>

#include "data/loader_options.h"
#include "data/prefetcher.h"
#include "data/text/length_sampler.h"
#include "data/text/text_dataset.h"
#include "engine/tensor.h"

namespace godwit::data {

// A padded batch. l is the length of the longest sample, rounded up to a multiple of 8, but at most the dataset's
// max_length. Tensors without a corresponding target in the dataset are undefined.
struct TextBatch {
  Tensor ids, token_type_ids;              // [b, l] int32; padding has the pad id and type 0
  Tensor mask;                             // [b, l] uint8, 1 for tokens, 0 for padding
  Tensor labels;                           // [b] int32: class, or next sentence (0: B follows A)
  Tensor starts, ends;                     // [b] int32: first and last token of the answer; 0 if absent
  Tensor masked_positions, masked_labels;  // [m] int32; positions are indices into the flattened [b·l]
  std::vector<int64_t> samples;            // [b], indices into the dataset
};

// Must be constructed on the rank's thread, because batches are CPU tensors from that rank's memory pool. next()
// rethrows errors of the loader threads. Evaluation reads every sample as in epoch 0.
class TextLoader {
 public:
  // Keeps a reference to the dataset. `window`: number of batches that are sorted by length together, see
  // LengthSampler.
  TextLoader(const TextDataset& dataset, LoaderOptions options, int64_t window = 64);

  int64_t batches() const { return sampler_.batches(); }     // number of batches of this rank per epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // may be called at any time; first_batch: where to resume
  std::optional<TextBatch> next();                           // empty at the end of the epoch and before start_epoch()

 private:
  const TextDataset& dataset_;
  bool train_;
  LengthSampler sampler_;
  int64_t epoch_ = 0, submitted_ = 0;
  Prefetcher prefetcher_;
};

}  // namespace godwit::data
