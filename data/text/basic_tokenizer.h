// BasicTokenizer: text into the words of BERT: cleaned, accents stripped, lower case; cut at whitespace, each mark of
// punctuation and each Chinese character alone. Every byte of a word knows the bytes of the text it comes from.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/unicode_table.h"

namespace godwit::data {

struct BasicTokenizerOptions {
  bool lower_case = true;
  std::optional<bool> strip_accents = std::nullopt;  // none: as lower_case
  bool split_cjk = true;                             // each Chinese character is a word
};

struct SourceRange {
  uint32_t begin, end;  // bytes of the text as given
};

struct Word {
  std::string_view text;       // normalised, UTF-8, not empty; valid during the call
  uint32_t chars;              // code points in it
  uint32_t first;              // where byte 0 comes from, when sources is null: then byte i comes from first + i alone
  const SourceRange* sources;  // of each byte of text

  SourceRange source(size_t begin, size_t end) const {  // of bytes [begin, end) of text
    if (sources) return {sources[begin].begin, sources[end - 1].end};
    return {first + static_cast<uint32_t>(begin), first + static_cast<uint32_t>(end)};
  }
};

class BasicTokenizer {
 public:
  explicit BasicTokenizer(const BasicTokenizerOptions& options);

  // Calls f(word) for all words of the bytes [begin, end) of the text, in order. Invalid UTF-8 is read as U+FFFD, which
  // normalisation removes. The text is below 4 GiB.
  template <class F>
  void each_word(std::string_view text, size_t begin, size_t end, F&& f) const;

 private:
  // Words that are not plain ASCII, normalised.
  struct Chunk {
    struct Part {
      size_t begin, end;  // bytes
      uint32_t chars;
    };
    std::string bytes;
    std::vector<SourceRange> sources;  // of each byte
    std::vector<Part> words;

    void clear();
    void append(std::string_view code, SourceRange source);
    void append(uint32_t entry, SourceRange source);
    void end_word();

   private:
    size_t word_ = 0;
    uint32_t chars_ = 0;
  };

  // What an ASCII byte is: one of these, or, above them, part of a word as the byte given.
  enum : uint8_t { kSpace, kAlone, kOther };
  static constexpr size_t kShort = 64;  // longer words are rare and go by way of a chunk

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
