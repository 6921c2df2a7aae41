// HuggingFace's tokenizer_config.json of a BERT: how its text is cut (lower case, accents, Chinese characters).
#pragma once
#include <optional>
#include <string>

#include "data/text/wordpiece.h"

namespace godwit::data {

struct TokenizerConfig {
  WordPieceOptions options = {};
  std::optional<double> model_max_length = std::nullopt;  // tokens; HuggingFace has 1e30 where there is no limit
};

// What the file leaves out is as in the tokenizer.json beside it (`beside`), or else as HuggingFace has it; fields that
// do not change the tokens are passed over. Throws Error naming file, field and value for anything malformed, for
// another tokenizer than BERT's or one without splitting, and for what contradicts `beside`.
TokenizerConfig read_tokenizer_config(const std::string& path, const WordPieceOptions* beside = nullptr);

// As HuggingFace reads it, whole or not at all. It knows no max_word but 100: throws for another.
void write_tokenizer_config(const std::string& path, const TokenizerConfig& config);

}  // namespace godwit::data
