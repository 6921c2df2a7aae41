#include "data/text/vocabulary.h"

#include <algorithm>

#include "data/file.h"
#include "engine/check.h"
#include "engine/text_file.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

constexpr uint64_t kMostVocabularyBytes = uint64_t{1} << 30;

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens)
    : TokenTable(std::move(tokens), "token", "\r\n", "a line break") {
  for (size_t i = 0; i < this->tokens().size(); ++i)
    check(is_utf8(this->tokens()[i]), "vocabulary: line ", i + 1, " is not UTF-8");
  pad_ = special("[PAD]");
  unk_ = special("[UNK]");
  cls_ = special("[CLS]");
  sep_ = special("[SEP]");
  mask_ = special("[MASK]");
}

int32_t Vocabulary::special(std::string_view token) const {
  const std::optional<int32_t> found = id(token);
  check(found.has_value(), "vocabulary: none of its ", size(), " tokens is ", token,
        "; a BERT vocabulary has [PAD] [UNK] [CLS] [SEP] [MASK]");
  return *found;
}

Vocabulary read_vocabulary(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path, "a vocabulary (one token a line)", kMostVocabularyBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> tokens;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    tokens.emplace_back(line);
    at = end + 1;
  }
  return with_place(path, [&] { return Vocabulary(std::move(tokens)); });
}

void write_vocabulary(const std::string& path, const Vocabulary& vocabulary) {
  std::string lines;
  for (const std::string& token : vocabulary.tokens()) lines += token + '\n';
  write_text_file(path, lines);
}

}  // namespace godwit::data
