#include "data/text/token_blocks.h"

#include <algorithm>
#include <vector>

#include "engine/check.h"
#include "engine/philox.h"

namespace godwit::data {
namespace {

constexpr uint32_t kOffsets = 1;  // the offsets' stream of random numbers; Sampler uses 0

int64_t count_blocks(int64_t tokens, const TokenBlockOptions& o) {
  check(o.context >= 1, "context: ", o.context, " tokens, expected at least 1");
  if (!o.train) {
    check(tokens >= 2, "the text has ", tokens, tokens == 1 ? " token" : " tokens", "; an evaluation needs 2");
    return (tokens - 1 + o.context - 1) / o.context;
  }
  check(tokens > o.context, "the text has ", tokens, tokens == 1 ? " token" : " tokens", ", but a block of context ",
        o.context, " needs ", o.context + 1, "; use more text or a shorter context");
  return std::max<int64_t>(1, (tokens - o.context) / o.context);
}

SamplerOptions sampling(const TokenBlockOptions& o) {
  return {.batch = o.batch, .rank = o.rank, .world = o.world, .seed = o.seed, .train = o.train};
}

Sampler sampler_of(int64_t blocks, const TokenBlockOptions& o) {
  if (o.train && o.batch >= 1 && o.world >= 1) {  // Sampler refuses other values
    const int64_t global = std::min(o.batch, INT64_MAX / o.world) * o.world;
    check(global <= blocks, "the text has ", blocks, blocks == 1 ? " block" : " blocks", " of context ", o.context,
          ", but a batch of ", o.batch, o.world == 1 ? " on 1 worker" : " on ",
          o.world == 1 ? "" : std::to_string(o.world) + " workers", " needs ", global,
          "; use more text, a smaller --batch, fewer workers or a shorter context");
  }
  return {blocks, sampling(o)};
}

}  // namespace

TokenBlocks::TokenBlocks(TokenStream tokens, const TokenBlockOptions& options)
    : tokens_(std::move(tokens)),
      options_(options),
      blocks_(count_blocks(tokens_.size(), options)),
      sampler_(sampler_of(blocks_, options)) {
  start_epoch(0);
}

void TokenBlocks::start_epoch(int64_t epoch, int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= batches(), "token blocks: batch ", first_batch, " of ", batches());
  sampler_.start_epoch(epoch);
  next_ = first_batch;
  if (!options_.train) return;
  const int64_t offsets = std::min(options_.context, tokens_.size() - blocks_ * options_.context);
  offset_ = RandomStream(options_.seed, Purpose::text, static_cast<uint32_t>(epoch), kOffsets)
                .below(static_cast<uint32_t>(offsets));
}

std::optional<TokenBatch> TokenBlocks::next() {
  if (next_ == batches()) return std::nullopt;
  const std::span<const uint32_t> samples = sampler_.batch(next_++);
  const int64_t context = options_.context, count = std::ssize(samples);
  TokenBatch batch{.ids = Tensor({count, context}, DType::i32, kCpu),
                   .labels = Tensor({count * context}, DType::i32, kCpu)};
  std::vector<int32_t> block(static_cast<size_t>(context) + 1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = offset_ + int64_t{samples[static_cast<size_t>(i)]} * context;
    const int64_t predictions = std::min(context, tokens_.size() - 1 - begin);
    tokens_.read(begin, std::span(block).first(static_cast<size_t>(predictions) + 1));
    int32_t *ids = batch.ids.data<int32_t>() + i * context, *labels = batch.labels.data<int32_t>() + i * context;
    std::fill(std::copy_n(block.begin(), predictions, ids), ids + context, 0);
    std::fill(std::copy_n(block.begin() + 1, predictions, labels), labels + context, kNoLabel);
    batch.predictions += predictions;
  }
  return batch;
}

}  // namespace godwit::data
