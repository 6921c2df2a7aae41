// CharTokenizer: a tokenizer in which each character is a token.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer.h"

namespace godwit::data {

inline constexpr const char* kCharactersFile = "characters.json";  // name of the vocabulary file

// The vocabulary is the set of characters (code points) of the training text in ascending order, as in nanoGPT. Invalid
// UTF-8 is treated as U+FFFD. There is no end-of-text token.
class CharTokenizer : public Tokenizer {
 public:
  // Throws unless the characters are code points in ascending order.
  explicit CharTokenizer(std::vector<char32_t> characters);

  std::string name() const override;
  int64_t size() const override { return std::ssize(characters_); }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  uint64_t fingerprint() const override;
  using Tokenizer::encode;
  // Throws an Error that names the character if it is outside the vocabulary.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string_view token(int32_t id) const override { return tokens_[static_cast<size_t>(id)]; }
  bool is_special(int32_t) const override { return false; }
  void save(const std::string& folder) const override;  // writes characters.json: an array of strings

 private:
  std::vector<char32_t> characters_;  // by id
  std::vector<std::string> tokens_;   // UTF-8, by id
  std::vector<int32_t> ascii_;        // id by code point below 128; -1: not in the vocabulary
};

// The set of characters of texts.
class CharacterSet {
 public:
  void add(std::string_view text);       // adds the characters of a text
  std::vector<char32_t> sorted() const;  // ascending

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

// Reads characters.json. Errors name the file.
CharTokenizer read_characters(const std::string& path);

}  // namespace godwit::data
