// generate(): continues a text with a language model, token by token.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/causal_lm.h"

namespace godwit {

// Options for drawing the next token from the network's probabilities.
struct SampleOptions {
  double temperature = 1;  // divisor of the logits; 0: always the most probable token
  int64_t top_k = 0;       // use only the k most probable tokens; 0: all
  double top_p = 1;        // use only the most probable tokens that together reach this probability
  uint64_t seed = 1;       // seed of the draws
};

// Throws if temperature or top_k is negative or top_p is outside (0, 1].
void check_sample_options(const SampleOptions& options);

// Draws a token from logits [vocab_size]. `uniform` is a random number in [0, 1). As in transformers, the temperature
// is applied first, then top_k, then top_p, which keeps at least one token. Among equal logits, the lower token ranks
// first. Throws if a logit is NaN.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform);

// Continues `prompt` by at most `count` tokens in [0, vocabulary), and stops after one of the tokens `ends`. Calls
// `each` with every new token. The network may have more outputs than `vocabulary`; these are never drawn. The result
// depends only on weights, prompt, vocabulary and options.
//
// Each token is read once, with a key-value cache. If the text fills all positions, the cache is cleared, and
// generation continues from the second half of these tokens. Throws if the prompt is empty, is longer than the
// positions, or has a token outside the network's vocabulary, or if `vocabulary` exceeds the network's outputs.
std::vector<int32_t> generate(const CausalLM& model, std::span<const int32_t> prompt, int64_t count,
                              int64_t vocabulary, const SampleOptions& options,
                              std::span<const int32_t> ends = {}, const std::function<void(int32_t)>& each = {});

}  // namespace godwit
