// Reads HuggingFace's tokenizer.json of a BERT model: vocabulary and tokenizer options in one file.
#pragma once
#include <string>

#include "data/text/wordpiece.h"

namespace godwit::data {

// Contents of a tokenizer.json.
struct TokenizerJson {
  Vocabulary vocabulary;     // tokens by id
  WordPieceOptions options;  // options of the tokenizer
};

// Reads tokenizer.json. Throws an Error that names the file, field and value if a field is malformed, if the ids are
// not exactly 0 to n-1, or if the tokenizer differs from WordPiece: another model, normalizer, pre-tokenizer or
// template, or added tokens other than [PAD] [UNK] [CLS] [SEP] [MASK]. Truncation, padding and decoder are ignored; the
// caller handles them.
TokenizerJson read_tokenizer_json(const std::string& path);

}  // namespace godwit::data
