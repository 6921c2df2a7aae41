// UnicodeTable: normalization and splitting of each code point, exactly as in HuggingFace's BERT tokenizer. Its rules
// use three Unicode versions: general categories of 8.0 (code points unassigned in 8.0 are parts of words), canonical
// decompositions of 9.0, and lower case of 17.0. The results do not depend on the installed Unicode library.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace godwit::data {

// Parts of normalization.
struct NormalizerOptions {
  bool lower_case, strip_accents, split_cjk;  // convert to lower case; strip accents; split at Chinese characters
};

// A table with an entry for every code point.
class UnicodeTable {
 public:
  enum Kind : uint32_t {  // kinds of entries
    unchanged,  // part of a word, unchanged
    word,       // part of a word, replaced by value()
    alone,      // value() is a separate word: punctuation, Chinese characters
    space,      // ends a word
    removed,    // control characters, and accents if they are stripped
    several,    // several entries, see many()
    reordered,  // its position depends on the neighboring marks, see normalize()
  };
  static Kind kind(uint32_t entry) { return static_cast<Kind>(entry >> 24); }  // kind of an entry
  static char32_t value(uint32_t entry) { return entry & 0xffffff; }  // the replacement, or the code point itself

  // A code point and its byte range in the source text.
  struct Char {
    uint32_t entry;       // entry of the code point
    uint32_t begin, end;  // byte range in the source text
  };

  explicit UnicodeTable(const NormalizerOptions& options);  // computes all entries

  // The entry of a code point up to U+10FFFF.
  uint32_t entry(char32_t code) const { return pages_[index_[code >> 8]][code & 0xff]; }
  // The entries of an entry of kind `several`. Their kinds are unchanged (including its value), word, alone or space.
  std::span<const uint32_t> many(uint32_t entry) const {
    const uint32_t* first = several_.data() + value(entry);
    return {first + 1, *first};
  }

  // Normalizes text with `reordered` code points. The input entries are plain code points. The output entries are of
  // kind word, alone or space.
  std::vector<Char> normalize(std::vector<Char> codes) const;

 private:
  using Page = std::array<uint32_t, 256>;
  void set(char32_t code, uint32_t entry);
  uint32_t make_entry(char32_t code);
  uint32_t final_entry(char32_t code) const;
  void lower(char32_t code, std::vector<char32_t>& to) const;

  NormalizerOptions options_;
  std::array<uint16_t, 0x1100> index_{};
  std::vector<Page> pages_;
  std::vector<uint32_t> several_;
};

}  // namespace godwit::data
