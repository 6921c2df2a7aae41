// WordVocabulary: the words of a language model's text. A word's id is its index.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/invalid_utf8.h"
#include "data/text/token_table.h"

namespace godwit::data {

inline constexpr std::string_view kEndOfLine = "<eos>";    // follows the words of each line
inline constexpr std::string_view kUnknownWord = "<unk>";  // replaces words outside the vocabulary

// The words, including the end-of-line token.
class WordVocabulary : public TokenTable {
 public:
  // Throws an Error that names lines, counted from 1, if a word is empty, contains a space or line break, or occurs
  // twice, or if <eos> is missing.
  explicit WordVocabulary(std::vector<std::string> words);

  int32_t end_of_line() const { return end_of_line_; }         // id of <eos>
  std::optional<int32_t> unknown() const { return unknown_; }  // id of <unk>; empty if it is missing

 private:
  int32_t end_of_line_ = 0;
  std::optional<int32_t> unknown_;
};

// The rule that splits a line into words.
enum class WordSplit {
  spaces,  // split at white space
  basic,   // also split around punctuation; lower case, accents removed (BasicTokenizer)
};

// A text whose lines are sentences.
struct WordText {
  std::string text;                     // lines end with \n or \r\n
  std::string name;                     // source, for messages
  WordSplit split = WordSplit::spaces;  // rule for each line
  std::vector<int64_t> lines = {};      // line numbers in the source, for messages; empty: 1, 2, …

  // Calls f(word, line) for each word, and for <eos> at the end of each line. `line` is the number of the line. The
  // view is valid during the call.
  void each_word(const std::function<void(std::string_view word, int64_t line)>& f) const;
};

// Reads a text file, plain or gzip. Adds its invalid UTF-8 to `invalid` if `invalid` is not null. Throws one Error that
// names the file, also for a file whose name indicates JSON or JSONL.
WordText read_word_text(const std::string& path, WordSplit split, InvalidUtf8* invalid = nullptr);

// The vocabulary of a text: all words, most frequent first (ties in byte order). If there are more than `limit`
// different words, including <eos>, the most frequent ones remain, and <unk> stands for the others. Throws if the text
// has no words or `limit` is below 3.
WordVocabulary build_word_vocabulary(const WordText& text, int64_t limit);

// Reads a file with one word per line. Adds its invalid UTF-8 to `invalid` if `invalid` is not null. Errors name the
// file.
WordVocabulary read_word_vocabulary(const std::string& path, InvalidUtf8* invalid = nullptr);
// Writes the file atomically. Throws an Error that names the file.
void write_word_vocabulary(const std::string& path, const WordVocabulary& vocabulary);

// The ids of a text.
struct EncodedText {
  std::vector<int32_t> tokens;  // one id per word and per end of line
  int64_t unknown = 0;  // number of words outside the vocabulary, which became <unk>
};

// Throws if the text has no words, or if a word is not in the vocabulary and the vocabulary has no <unk>.
EncodedText encode_words(const WordText& text, const WordVocabulary& vocabulary);

}  // namespace godwit::data
