// Vocabulary: the tokens of a BERT vocab.txt, one per line; a token's id is its line number, starting at 0.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace godwit::data {

// Maps tokens to ids and back.
class Vocabulary {
 public:
  // A token's id is its index. Throws, naming lines starting at 1, if a token is empty, contains a line break, is not
  // UTF-8 or occurs twice, or if one of [PAD] [UNK] [CLS] [SEP] [MASK] is missing.
  explicit Vocabulary(std::vector<std::string> tokens);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // number of tokens
  std::optional<int32_t> id(std::string_view token) const;               // none if it is not in the vocabulary
  const std::string& token(int32_t id) const;                            // throws unless 0 <= id < size()
  const std::vector<std::string>& tokens() const { return tokens_; }     // by id
  uint64_t hash() const;                                                 // of all tokens in order

  int32_t pad() const { return pad_; }    // id of [PAD]
  int32_t unk() const { return unk_; }    // id of [UNK]
  int32_t cls() const { return cls_; }    // id of [CLS]
  int32_t sep() const { return sep_; }    // id of [SEP]
  int32_t mask() const { return mask_; }  // id of [MASK]

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  int32_t special(std::string_view token) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> ids_;
  int32_t pad_, unk_, cls_, sep_, mask_;
};

// Lines end with \n or \r\n. Errors name the file.
Vocabulary read_vocabulary(const std::string& path);
// Atomically; throws an Error naming the file.
void write_vocabulary(const std::string& path, const Vocabulary& vocabulary);

}  // namespace godwit::data
