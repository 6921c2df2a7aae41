// BasicTokenizer: splits text into BERT's words. Cleans the text, strips accents and converts to lower case. Splits at
// whitespace, and around each punctuation mark and Chinese character. Maps every byte of a word to its bytes in the
// source text.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/unicode_table.h"

namespace godwit::data {

// Normalization and splitting of words.
struct BasicTokenizerOptions {
  bool lower_case = true;                            // also strips accents, unless strip_accents is set to false
  std::optional<bool> strip_accents = std::nullopt;  // unset: same as lower_case
  bool split_cjk = true;                             // whether each Chinese character is a word
};

// A range of the source text.
struct SourceRange {
  uint32_t begin, end;  // bytes of the source text
};

// One word of a text.
struct Word {
  std::string_view text;       // normalized UTF-8, not empty; valid during the call
  uint32_t chars;              // number of code points in `text`
  uint32_t first;              // if sources is null, byte i of the text comes from source byte first + i
  const SourceRange* sources;  // one range per byte of text

  SourceRange source(size_t begin, size_t end) const {  // source range of bytes [begin, end) of text
    if (sources) return {sources[begin].begin, sources[end - 1].end};
    return {first + static_cast<uint32_t>(begin), first + static_cast<uint32_t>(end)};
  }
};

// Splits texts into words. Thread-safe.
class BasicTokenizer {
 public:
  explicit BasicTokenizer(const BasicTokenizerOptions& options);  // builds the table of all characters

  // Calls f(word) for all words in bytes [begin, end) of the text, in order. Invalid UTF-8 becomes U+FFFD, which
  // normalization removes. The text must be shorter than 4 GiB.
  template <class F>
  void each_word(std::string_view text, size_t begin, size_t end, F&& f) const;

 private:
  // Normalized words that are not plain ASCII.
  struct Chunk {
    struct Part {  // a word
      size_t begin, end;  // byte range
      uint32_t chars;     // number of code points
    };
    std::string bytes;
    std::vector<SourceRange> sources;  // one range per byte
    std::vector<Part> words;

    void clear();
    void append(std::string_view code, SourceRange source);
    void append(uint32_t entry, SourceRange source);
    void end_word();

   private:
    size_t word_ = 0;
    uint32_t chars_ = 0;
  };

  // Classes of ASCII bytes. A larger value is the replacement byte of a character inside a word.
  enum : uint8_t { kSpace, kAlone, kOther };
  static constexpr size_t kShort = 64;  // longer words are rare and use a Chunk

  void normalize(std::string_view text, size_t begin, size_t end, Chunk& chunk) const;
  void normalize_reordered(std::string_view text, size_t begin, size_t end, Chunk& chunk) const;

  uint8_t ascii_[256];
  std::shared_ptr<const UnicodeTable> table_;
};

template <class F>
void BasicTokenizer::each_word(std::string_view text, size_t begin, size_t end, F&& f) const {
  Chunk chunk;
  char word[kShort];
  const auto kind = [&](size_t at) { return ascii_[static_cast<uint8_t>(text[at])]; };
  for (size_t at = begin; at < end;) {
    const uint8_t first = kind(at);
    if (first == kSpace) {
      ++at;
      continue;
    }
    const auto start = static_cast<uint32_t>(at);
    if (first == kAlone) {
      f(Word{text.substr(at++, 1), 1, start, nullptr});
      continue;
    }
    size_t length = 0;
    uint8_t next = first;
    for (; at < end && length < kShort && (next = kind(at)) > kOther; ++at) word[length++] = static_cast<char>(next);
    if (at == end || next < kOther) {
      f(Word{{word, length}, static_cast<uint32_t>(length), start, nullptr});
      continue;
    }
    while (at < end && kind(at) >= kOther) ++at;
    chunk.clear();
    normalize(text, start, at, chunk);
    for (const auto& part : chunk.words)
      f(Word{
          {chunk.bytes.data() + part.begin, part.end - part.begin}, part.chars, 0, chunk.sources.data() + part.begin});
  }
}

}  // namespace godwit::data
