// Generation of text with a language model, token by token.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/language_model.h"

namespace godwit {

// Options for the draw of the next token from the network's probabilities.
struct SampleOptions {
  double temperature = 1;  // divisor of the logits; 0: always the most probable token
  int64_t top_k = 0;       // only the k most probable tokens; 0: all
  double top_p = 1;        // only the most probable tokens that together reach this probability
  uint64_t seed = 1;       // of the draws
};

// Throws unless temperature and top_k are not negative and top_p is in (0, 1].
void check_sample_options(const SampleOptions& options);

// Draws a token from logits [vocab_size]. `uniform` is a random number in [0, 1). As in transformers, the temperature
// is applied first, then top_k, then top_p, which keeps at least one token. Of equal logits the lower token ranks
// first. Throws if a logit is NaN.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform);

// Continues `prompt` by at most `count` tokens of [0, vocabulary), and stops after one of the tokens `ends`. The
// network may have more outputs than `vocabulary`; they are never drawn. Calls `each` with every new token. The result
// depends only on weights, prompt, vocabulary and options. Reads each token once, with a key-value cache. If the text
// fills all positions, the cache is cleared, and generation continues from the last half of these tokens. Throws if the
// prompt is empty, longer than the positions, or has a token outside of the network's vocabulary, or if `vocabulary`
// exceeds the network's outputs.
std::vector<int32_t> generate(const LanguageModel& model, std::span<const int32_t> prompt, int64_t count,
                              int64_t vocabulary, const SampleOptions& options,
                              std::span<const int32_t> ends = {}, const std::function<void(int32_t)>& each = {});

}  // namespace godwit
