// WordPiece: BERT's tokenizer, with the ids and offsets of HuggingFace's BertWordPieceTokenizer.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/text/byte_trie.h"
#include "data/text/vocabulary.h"
#include "data/text/basic_tokenizer.h"

namespace godwit::data {

// A token of a text.
struct Token {
  int32_t id;           // id in the vocabulary
  uint32_t begin, end;  // bytes [begin, end) of the source text

  bool operator==(const Token&) const = default;
};

// Normalization and splitting of words.
struct WordPieceOptions {
  bool lower_case = true;                            // also strips accents, unless strip_accents is set to false
  std::optional<bool> strip_accents = std::nullopt;  // unset: same as lower_case
  bool split_cjk = true;                             // whether each Chinese character is a word
  int max_word = 100;                                // maximum number of code points in a word; a longer word is [UNK]
};

// The tokenizer. Thread-safe.
class WordPiece {
 public:
  // Throws if max_word is below 1.
  explicit WordPiece(Vocabulary vocabulary, const WordPieceOptions& options = {});

  // The tokens of a text, without special tokens around it. Exact occurrences of "[PAD]", "[UNK]", "[CLS]", "[SEP]" and
  // "[MASK]" in the text become these tokens. Invalid UTF-8 and U+FFFD are ignored. The text must be shorter than 4
  // GiB.
  std::vector<Token> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<Token>& tokens) const;  // appends to `tokens`

  const Vocabulary& vocabulary() const { return vocabulary_; }  // tokens by id

 private:
  struct Special {
    size_t at, length;  // length 0: no special token up to the end of the text
    int32_t id;
  };
  Special next_special(std::string_view text, size_t at) const;
  void match(const Word& word, std::vector<Token>& tokens) const;

  Vocabulary vocabulary_;
  BasicTokenizer splitter_;
  uint32_t max_word_;
  ByteTrie beginnings_, continuations_;  // tokens without ##, and with ##
};

}  // namespace godwit::data
