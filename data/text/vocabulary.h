// Vocabulary: the tokens of BERT's vocab.txt, one per line. A token's id is its line number, starting at 0.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/token_table.h"

namespace godwit::data {

// The tokens, including BERT's special tokens.
class Vocabulary : public TokenTable {
 public:
  // A token's id is its index. Throws an Error that names lines, counted from 1, if a token is empty, contains a line
  // break, is not UTF-8 or occurs twice, or if one of [PAD] [UNK] [CLS] [SEP] [MASK] is missing.
  explicit Vocabulary(std::vector<std::string> tokens);

  int32_t pad() const { return pad_; }    // id of [PAD]
  int32_t unk() const { return unk_; }    // id of [UNK]
  int32_t cls() const { return cls_; }    // id of [CLS]
  int32_t sep() const { return sep_; }    // id of [SEP]
  int32_t mask() const { return mask_; }  // id of [MASK]

 private:
  int32_t special(std::string_view token) const;

  int32_t pad_, unk_, cls_, sep_, mask_;
};

// Reads a file whose lines end with \n or \r\n. Errors name the file.
Vocabulary read_vocabulary(const std::string& path);
// Writes the file atomically. Throws an Error that names the file.
void write_vocabulary(const std::string& path, const Vocabulary& vocabulary);

}  // namespace godwit::data
