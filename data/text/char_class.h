// Classes of characters in the patterns of byte-level BPE tokenizers: \p{L}, \p{N} and \s of Unicode 16, as in
// HuggingFace's tokenizers 0.23. They do not depend on the version of the installed Unicode library.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace godwit::data {

// The class of a character. Invalid UTF-8 is `other`.
enum class CharClass : uint8_t { other, letter, number, space };

// The classes of all code points.
class CharClasses {
 public:
  static const CharClasses& instance();  // computed by the first call; thread-safe

  CharClass of(char32_t code) const { return pages_[index_[code >> 8]][code & 0xff]; }  // requires code <= U+10FFFF

 private:
  CharClasses();
  using Page = std::array<CharClass, 256>;
  std::array<uint16_t, 0x1100> index_{};
  std::vector<Page> pages_;
};

}  // namespace godwit::data
