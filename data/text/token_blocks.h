// TokenBlocks: the batches of a language model. They are blocks of consecutive tokens, shuffled over all workers.
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
  int64_t context = 64;  // number of inputs of a block, and of its labels
  int64_t batch = 12;    // number of blocks of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // true: shuffle in each epoch; false: every token except the first is predicted once, in order
};

// The batch of one rank.
struct TokenBatch {
  Tensor ids;               // int32 [b, context]
  Tensor labels;            // int32 [b·context]: the next token of each position, or kNoLabel (evaluation only)
  int64_t predictions = 0;  // number of labels that are not kNoLabel
};

// Block i has the tokens [i·context, (i + 1)·context) after an offset, and predicts the next token of each. Blocks do
// not overlap. They ignore the ends of documents, so that no position is padding. Training: the offset of an epoch is a
// random number below `context`, and Sampler assigns the blocks to the ranks. An epoch predicts each token at most
// once, and omits fewer than 2·context tokens and an incomplete global batch. Evaluation: the offset is 0, and the last
// block may be padded with id 0 and kNoLabel. All batches are a pure function of seed, epoch, rank and world.
class TokenBlocks {
 public:
  // Throws if a size is not positive, or if the tokens do not fill one block (for training, one global batch).
  TokenBlocks(TokenStream tokens, const TokenBlockOptions& options);

  int64_t batches() const { return sampler_.batches(); }     // number of batches of this rank per epoch
  int64_t blocks() const { return blocks_; }                 // number of blocks of all ranks per epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // may be called at any time; first_batch: where to resume
  std::optional<TokenBatch> next();                          // empty at the end of the epoch

 private:
  TokenStream tokens_;
  TokenBlockOptions options_;
  int64_t blocks_;
  Sampler sampler_;
  int64_t offset_ = 0, next_ = 0;
};

}  // namespace godwit::data
