#include "data/text/word_vocabulary.h"

#include <algorithm>
#include <utility>

#include "data/file.h"
#include "data/text/basic_tokenizer.h"
#include "data/text/documents.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/text_file.h"

namespace godwit::data {
namespace {

constexpr uint64_t kMostTextBytes = (uint64_t{1} << 32) - 1;  // BasicTokenizer takes less than 4 GiB
constexpr std::string_view kBlank = " \t\v\f\r\n";

// Calls f(line) for each line, without its line break. The last line may lack a line break.
template <class F>
void each_line(std::string_view text, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    f(line);
    at = end + 1;
  }
}

void check_has_words(const WordText& text, bool has_words) {
  check(has_words, text.name, ": holds no words; expected text with one sentence per line");
}

}  // namespace

WordVocabulary::WordVocabulary(std::vector<std::string> words)
    : TokenTable(std::move(words), "word", kBlank, "white space") {
  const std::optional<int32_t> end = id(kEndOfLine);
  check(end.has_value(), "vocabulary: none of its ", size(), " words is ", kEndOfLine, ", the end of a line");
  end_of_line_ = *end;
  unknown_ = id(kUnknownWord);
}

void WordText::each_word(const std::function<void(std::string_view, int64_t)>& f) const {
  std::optional<BasicTokenizer> tokenizer;
  if (split == WordSplit::basic) tokenizer.emplace(BasicTokenizerOptions{});
  size_t count = 0;
  each_line(text, [&](std::string_view line) {
    const int64_t number = lines.empty() ? static_cast<int64_t>(count) + 1 : lines[count];
    ++count;
    if (tokenizer) {
      tokenizer->each_word(line, 0, line.size(), [&](const Word& word) { f(word.text, number); });
    } else {
      for (size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
        const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
        f(line.substr(at, end - at), number);
        at = line.find_first_not_of(kBlank, end);
      }
    }
    f(kEndOfLine, number);
  });
}

WordText read_word_text(const std::string& path, WordSplit split, InvalidUtf8* invalid) {
  check_plain_text(path);
  const std::vector<uint8_t> bytes = read_unpacked(path, "a text file", kMostTextBytes);
  const std::string_view text = utf8_text(bytes, path);
  if (invalid) invalid->add(path, text, bytes.size() - text.size());
  return {.text = std::string(text), .name = path, .split = split};
}

WordVocabulary build_word_vocabulary(const WordText& text, int64_t limit) {
  check(limit >= 3, "vocabulary: limited to ", limit, " words, expected at least 3");
  std::unordered_map<std::string, int64_t> counts;
  bool has_words = false;
  text.each_word([&](std::string_view word, int64_t) {
    ++counts[std::string(word)];
    has_words = has_words || word != kEndOfLine;
  });
  check_has_words(text, has_words);
  std::vector<std::pair<std::string, int64_t>> ranked(counts.begin(), counts.end());
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (std::ssize(ranked) > limit) {
    // <eos> and <unk> remain at any frequency.
    std::vector<std::pair<std::string, int64_t>> kept;
    int64_t others = limit - 2;
    bool has_unknown = false;
    for (const auto& entry : ranked) {
      const bool special = entry.first == kEndOfLine || entry.first == kUnknownWord;
      has_unknown = has_unknown || entry.first == kUnknownWord;
      if (special || others-- > 0) kept.push_back(entry);
    }
    if (!has_unknown) kept.emplace_back(kUnknownWord, 0);
    ranked = std::move(kept);
  }
  std::vector<std::string> words;
  for (auto& entry : ranked) words.push_back(std::move(entry.first));
  return WordVocabulary(std::move(words));
}

WordVocabulary read_word_vocabulary(const std::string& path, InvalidUtf8* invalid) {
  const std::vector<uint8_t> bytes = read_file(path, "a vocabulary (one word per line)", kMostTextBytes);
  const std::string_view text = utf8_text(bytes, path);
  if (invalid) invalid->add(path, text, bytes.size() - text.size());
  std::vector<std::string> words;
  each_line(text, [&](std::string_view line) { words.emplace_back(line); });
  return with_place(path, [&] { return WordVocabulary(std::move(words)); });
}

void write_word_vocabulary(const std::string& path, const WordVocabulary& vocabulary) {
  std::string lines;
  for (const std::string& word : vocabulary.tokens()) lines += word + '\n';
  write_text_file(path, marked_utf8(std::move(lines)));
}

EncodedText encode_words(const WordText& text, const WordVocabulary& vocabulary) {
  EncodedText result;
  bool has_words = false;
  text.each_word([&](std::string_view word, int64_t line) {
    has_words = has_words || word != kEndOfLine;
    std::optional<int32_t> id = vocabulary.id(word);
    if (!id) {
      id = vocabulary.unknown();
      check(id.has_value(), text.name, ": line ", line, ": '", excerpt(word), "' is not in the vocabulary, which has ",
            "no ", kUnknownWord, "; add ", kUnknownWord, " to it, or build it with fewer words than its text has");
      ++result.unknown;
    }
    result.tokens.push_back(*id);
  });
  check_has_words(text, has_words);
  return result;
}

}  // namespace godwit::data
