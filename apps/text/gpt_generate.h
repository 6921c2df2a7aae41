// Generates text: samples at evaluations, and the output of --generate.
#pragma once
#include <functional>
#include <string>

#include "apps/text/gpt_config.h"
#include "data/text/tokenizer.h"
#include "models/causal_lm.h"

namespace godwit::apps {

// A sample of generate.tokens tokens. It continues the end-of-text token, or a line feed if there is no such token. ""
// if the tokenizer has neither. Calls `after_token` after each token.
std::string sample_text(const CausalLM& model, const data::Tokenizer& tokenizer, const GptConfig& config,
                        const std::function<void()>& after_token);

// Returns the text without a final line feed, with control characters escaped except tabs and line feeds.
std::string printable_lines(const std::string& text);

// Implements --generate: prints the prompt and its continuation by the initial weights. Throws if the folder has no
// weights or tokenizer, or if the model cannot read the prompt.
void continue_prompt(const GptConfig& config);

}  // namespace godwit::apps
