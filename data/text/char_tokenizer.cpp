#include "data/text/char_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/hash.h"
#include "engine/text_file.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

std::string utf8_of(char32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

}  // namespace

CharTokenizer::CharTokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)), ascii_(128, -1) {
  check(!characters_.empty(), "tokenizer: the vocabulary has no characters");
  for (size_t i = 0; i < characters_.size(); ++i) {
    const char32_t code = characters_[i];
    tokens_.push_back(utf8_of(code));
    check(is_utf8(tokens_.back()), "tokenizer: character ", i, " is the invalid code point ", uint32_t{code});
    check(i == 0 || characters_[i - 1] < code, "tokenizer: character ", i, ", '", printable(tokens_.back()),
          "', does not follow '", printable(tokens_[i == 0 ? 0 : i - 1]), "'; expected ascending characters");
    if (code < 128) ascii_[code] = static_cast<int32_t>(i);
  }
}

std::string CharTokenizer::name() const {
  return "character tokenizer, " + std::to_string(size()) + (size() == 1 ? " character" : " characters");
}

uint64_t CharTokenizer::fingerprint() const {
  Hash hash;
  hash.add(std::string("characters"));
  for (const char32_t code : characters_) hash.add(uint64_t{code});
  return hash.value();
}

void CharTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    int32_t id = -1;
    if (code.value < 128) {
      id = ascii_[code.value];
    } else if (const auto found = std::ranges::lower_bound(characters_, code.value);
               found != characters_.end() && *found == code.value) {
      id = static_cast<int32_t>(found - characters_.begin());
    }
    check(id >= 0, "tokenizer: the character '", printable(utf8_of(code.value)), "' at byte ", at,
          " of the text is not among the vocabulary's ", size(), " characters");
    ids.push_back(id);
    at += code.bytes;
  }
}

void CharTokenizer::save(const std::string& folder) const {
  write_text_file(folder + "/" + kCharactersFile, nlohmann::json(tokens_).dump() + "\n");
}

void CharacterSet::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    seen_[code.value] = true;
    at += code.bytes;
  }
}

std::vector<char32_t> CharacterSet::sorted() const {
  std::vector<char32_t> characters;
  for (char32_t code = 0; code < seen_.size(); ++code)
    if (seen_[code]) characters.push_back(code);
  return characters;
}

CharTokenizer read_characters(const std::string& path) {
  const JsonFile file(path, "a characters.json");
  std::vector<char32_t> characters;
  file.root().each([&](const JsonNode& node) {
    const std::string& text = node.text();
    check(!text.empty() && decode_utf8(text, 0).bytes == text.size(), node.where(), "is \"", excerpt(text),
          "\", expected one character");
    characters.push_back(decode_utf8(text, 0).value);
  });
  return with_place(path, [&] { return CharTokenizer(std::move(characters)); });
}

}  // namespace godwit::data
