// HuggingFace's tokenizer.json of a BERT: its vocabulary and how its text is cut, in one file.
#pragma once
#include <string>

#include "data/text/wordpiece.h"

namespace godwit::data {

struct TokenizerJson {
  Vocabulary vocabulary;
  WordPieceOptions options;
};

// Throws Error naming file, field and value for anything malformed, for ids other than 0 to n-1, each once, and for a
// tokenizer that gives other tokens than WordPiece: another model, normalizer, pre-tokenizer or template, or added
// tokens other than [PAD] [UNK] [CLS] [SEP] [MASK]. Truncation, padding and decoder are the caller's and passed over.
TokenizerJson read_tokenizer_json(const std::string& path);

}  // namespace godwit::data
