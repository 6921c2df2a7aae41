// WordPattern: splits text into the words that a byte-level BPE tokenizer encodes one by one.
#pragma once
#include <cstdint>
#include <string_view>

#include "data/text/char_class.h"

namespace godwit::data {

// The pattern of a tokenizer.
enum class WordPatternKind {
  gpt2,    // contractions, and runs of letters, numbers or other characters, each with one preceding space
  llama3,  // also cl100k of GPT-4: at most three digits, contractions in any case, line breaks after punctuation
  qwen2,   // like llama3, with one digit
};

// The regular expression of a pattern, as in tokenizer.json.
const char* regex_of(WordPatternKind kind);

// Finds the ends of words without a regular expression engine. Invalid UTF-8 counts as other characters. Thread-safe.
class WordPattern {
 public:
  explicit WordPattern(WordPatternKind kind);  // splits by this pattern

  // The end of the word that begins at text[at]; requires at < text.size(). The words partition the text.
  size_t end_of_word(std::string_view text, size_t at) const {
    return kind_ == WordPatternKind::gpt2 ? end_of_gpt2(text, at) : end_of_llama3(text, at);
  }

 private:
  struct Char {
    CharClass kind;
    uint32_t bytes;
  };
  Char char_at(std::string_view text, size_t at) const;
  size_t end_of_run(std::string_view text, size_t at, CharClass kind) const;
  size_t end_of_spaces(std::string_view text, size_t at, bool line_breaks) const;
  size_t end_of_gpt2(std::string_view text, size_t at) const;
  size_t end_of_llama3(std::string_view text, size_t at) const;

  WordPatternKind kind_;
  const CharClasses& classes_;
  CharClass ascii_[128];
};

}  // namespace godwit::data
