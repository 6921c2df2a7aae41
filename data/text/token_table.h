// TokenTable: distinct tokens and their ids.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace godwit::data {

// Maps tokens to ids and back. A token's id is its index, which is its line number in a vocabulary file.
class TokenTable {
 public:
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // number of tokens
  std::optional<int32_t> id(std::string_view token) const;               // empty if the token is not in the table
  const std::string& token(int32_t id) const;                            // throws unless 0 <= id < size()
  const std::vector<std::string>& tokens() const { return tokens_; }     // by id
  uint64_t hash() const;                                                 // hash of all tokens in order

 protected:
  // Throws an Error that names lines, counted from 1, if a token is empty, contains one of the characters `excluded`,
  // or occurs twice. `excluded_name`: "a line break". `kind`: "token" or "word". Both are for messages.
  TokenTable(std::vector<std::string> tokens, const std::string& kind, std::string_view excluded,
             const std::string& excluded_name);

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::string kind_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> ids_;
};

}  // namespace godwit::data
