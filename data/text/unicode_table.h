// UnicodeTable: what BERT's normalisation and splitting make of each code point. Exactly the HuggingFace rules, which
// stand on three versions of Unicode: general categories of 8.0 (unassigned then: part of a word), canonical
// decompositions of 9.0, lower case of 17.0. So no text is cut otherwise on a machine with another Unicode library.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace godwit::data {

struct NormalizerOptions {
  bool lower_case, strip_accents, split_cjk;
};

class UnicodeTable {
 public:
  enum Kind : uint32_t {
    unchanged,  // itself, part of a word
    word,       // part of a word, as value()
    alone,      // a word of its own, as value(): punctuation, Chinese characters
    space,      // ends a word
    removed,    // controls, and accents where they are stripped
    several,    // many(entry)
    reordered,  // its place depends on the marks around it: see normalize()
  };
  static Kind kind(uint32_t entry) { return static_cast<Kind>(entry >> 24); }
  static char32_t value(uint32_t entry) { return entry & 0xffffff; }

  // A code point and the bytes of the text it comes from.
  struct Char {
    uint32_t entry;
    uint32_t begin, end;
  };

  explicit UnicodeTable(const NormalizerOptions& options);

  uint32_t entry(char32_t code) const { return pages_[index_[code >> 8]][code & 0xff]; }
  // The entries of one of kind several: each unchanged (with its value), word, alone, or space.
  std::span<const uint32_t> many(uint32_t entry) const {
    const uint32_t* first = several_.data() + value(entry);
    return {first + 1, *first};
  }

  // Text with `reordered` code points: takes entries that are bare code points, gives entries of the kinds word, alone
  // and space.
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
