// HuggingFace's tokenizer_config.json of a BERT model: tokenizer options (lower case, accents, Chinese characters).
#pragma once
#include <optional>
#include <string>

#include "data/text/wordpiece.h"

namespace godwit::data {

// Contents of a tokenizer_config.json.
struct TokenizerConfig {
  WordPieceOptions options = {};                          // options of the tokenizer
  std::optional<double> model_max_length = std::nullopt;  // maximum in tokens; HuggingFace writes 1e30 for no limit
};

// Reads tokenizer_config.json. Missing fields default to the tokenizer.json in the same folder (`beside`), or to
// HuggingFace's defaults. Fields that do not affect the tokens are ignored. Throws an Error that names the file, field
// and value if a field is malformed, if the tokenizer is not BERT's or does not split words, or if a field contradicts
// `beside`. If `lower_case` has a value, this value replaces do_lower_case and `beside`'s lower_case, which may differ.
TokenizerConfig read_tokenizer_config(const std::string& path, const WordPieceOptions* beside = nullptr,
                                      std::optional<bool> lower_case = std::nullopt);

// Writes atomically, in HuggingFace's format. Throws if max_word is not 100, because HuggingFace supports only this
// value.
void write_tokenizer_config(const std::string& path, const TokenizerConfig& config);

}  // namespace godwit::data
