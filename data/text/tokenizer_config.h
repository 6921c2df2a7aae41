// HuggingFace's tokenizer_config.json of a BERT: tokenizer options (lower case, accents, Chinese characters).
#pragma once
#include <optional>
#include <string>

#include "data/text/wordpiece.h"

namespace godwit::data {

// Settings of a tokenizer_config.json.
struct TokenizerConfig {
  WordPieceOptions options = {};                          // options of the tokenizer
  std::optional<double> model_max_length = std::nullopt;  // in tokens; HuggingFace writes 1e30 for no limit
};

// Reads tokenizer_config.json. Missing fields default to the tokenizer.json in the same folder (`beside`), or to
// HuggingFace's defaults. Fields without influence on the tokens are ignored. Throws an Error naming file, field and
// value if a field is malformed, if the tokenizer is not BERT's or does not split words, or if a field contradicts
// `beside`.
TokenizerConfig read_tokenizer_config(const std::string& path, const WordPieceOptions* beside = nullptr);

// Writes atomically, in HuggingFace's format. Throws if max_word is not 100, the only value HuggingFace supports.
void write_tokenizer_config(const std::string& path, const TokenizerConfig& config);

}  // namespace godwit::data
