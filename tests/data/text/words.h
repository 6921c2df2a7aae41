// A tokenizer for tests. Its tokens are [PAD] [UNK] [CLS] [SEP] [MASK], the words w0 … w9, word pieces and a comma.
#pragma once
#include "data/text/wordpiece.h"
#include "tests/support.h"

namespace godwit::data {

constexpr int32_t kComma = 15;

inline const WordPiece& word_tokenizer() {
  static const WordPiece tokenizer(
      Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w0", "w1",  "w2",   "w3",   "w4", "w5",
                  "w6",    "w7",    "w8",    "w9",    ",",      "e",  "##e", "##w0", "##w2", "a",  "##b"}));
  return tokenizer;
}

}  // namespace godwit::data
