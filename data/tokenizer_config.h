// HuggingFace's tokenizer_config.json of a BERT: how its text is cut (lower case, accents, Chinese characters).
#pragma once
#include <string>

#include "data/wordpiece.h"

namespace godwit::data {

// What the file leaves out is as HuggingFace has it, fields that do not change the tokens are passed over. Throws Error
// naming file, field and value for anything malformed, and for another tokenizer than BERT's or one without splitting.
WordPieceOptions read_tokenizer_config(const std::string& path);

// As HuggingFace reads it, whole or not at all. It knows no max_word but 100: throws for another.
void write_tokenizer_config(const std::string& path, const WordPieceOptions& options);

}  // namespace godwit::data
