// TokenBlocks: the batches of a language model: blocks of consecutive tokens, shuffled over all workers.
#pragma once
#include <cstdint>
#include <optional>

#include "data/sampler.h"
#include "data/text/token_stream.h"
#include "data/text/token_windows.h"
#include "engine/tensor.h"

namespace godwit::data {

// Sizes, shard and order of the blocks.
struct TokenBlockOptions {
  int64_t context = 64;  // number of inputs of a block, and of labels
  int64_t batch = 12;    // blocks of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // true: shuffle in each epoch; false: every token but the first is predicted once, in order
};

// One rank's batch.
struct TokenBatch {
  Tensor ids;               // int32 [b, context]
  Tensor labels;            // int32 [b·context]: the next token of each position, or kNoLabel (evaluation only)
  int64_t predictions = 0;  // number of labels that are not kNoLabel
};

// Block i has the tokens [i·context, (i + 1)·context) after an offset, and predicts the next token of each. Blocks do
// not overlap and ignore the ends of documents, so that no position is padding. Training: the offset of an epoch is a
// random number below `context`; Sampler deals the blocks to the ranks. An epoch predicts each token at most once, and
// leaves out fewer than 2·context tokens and an incomplete global batch. Evaluation: the offset is 0, and the last
// block may be padded with id 0 and kNoLabel. All batches are a pure function of seed, epoch, rank and world.
class TokenBlocks {
 public:
  // Throws if a size is not positive, or if the tokens do not fill one block (training: one global batch).
  TokenBlocks(TokenStream tokens, const TokenBlockOptions& options);

  int64_t batches() const { return sampler_.batches(); }     // batches of this rank per epoch
  int64_t blocks() const { return blocks_; }                 // blocks of all ranks per epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // callable at any time; first_batch: where to resume
  std::optional<TokenBatch> next();                          // none at the end of the epoch

 private:
  TokenStream tokens_;
  TokenBlockOptions options_;
  int64_t blocks_;
  Sampler sampler_;
  int64_t offset_ = 0, next_ = 0;
};

}  // namespace godwit::data
