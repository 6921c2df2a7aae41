// InvalidUtf8: counts the invalid UTF-8 sequences of texts for a notice.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace godwit::data {

inline constexpr const char* kInvalidAreReplaced =
    "each is the character U+FFFD; convert the text to UTF-8, or use a byte-level BPE";  // with CharTokenizer

// Counts the invalid UTF-8 sequences of texts.
struct InvalidUtf8 {
  int64_t count = 0;       // number of sequences
  std::string first = "";  // place of the first sequence: "FILE at byte N", N from 0

  // Counts the sequences in `text`, the content of `file` from byte `begin` on.
  void add(const std::string& file, std::string_view text, size_t begin = 0);
  // The notice, or "" if there are no invalid sequences. `effect`: how the sequences are treated, and the remedy.
  std::string notice(const std::string& effect) const;
};

}  // namespace godwit::data
