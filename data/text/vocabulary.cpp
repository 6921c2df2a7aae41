#include "data/text/vocabulary.h"

#include <algorithm>

#include "data/file.h"
#include "data/text/utf8.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  check(tokens_.size() < size_t{1} << 31, "vocabulary: ", tokens_.size(),
        " tokens, expected fewer than 2^31");
  ids_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    check(!token.empty(), "vocabulary: line ", i + 1, " is empty");
    check(token.find_first_of("\r\n") == std::string::npos, "vocabulary: the token of line ", i + 1,
          " contains a line break");
    check(is_utf8(token), "vocabulary: line ", i + 1, " is not UTF-8");
    const auto [known, added] = ids_.emplace(token, static_cast<int32_t>(i));
    if (!added)
      fail("vocabulary: '", excerpt(token), "' occurs in line ", known->second + 1, " and again in line ", i + 1);
  }
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

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string& Vocabulary::token(int32_t id) const {
  check(id >= 0 && id < size(), "vocabulary: id ", id, " is not among its ", size(), " tokens");
  return tokens_[static_cast<size_t>(id)];
}

uint64_t Vocabulary::hash() const {
  Hash hash;
  for (const std::string& token : tokens_) hash.add(token);
  return hash.value();
}

Vocabulary read_vocabulary(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path, "a vocabulary (one token a line)", kMostBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> tokens;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    tokens.emplace_back(line);
    at = end + 1;
  }
  try {
    return Vocabulary(std::move(tokens));
  } catch (const Error& error) {
    throw error.with_text(path + ": " + error.what());
  }
}

void write_vocabulary(const std::string& path, const Vocabulary& vocabulary) {
  std::string lines;
  for (const std::string& token : vocabulary.tokens()) lines += token + '\n';
  write_file(path, lines);
}

}  // namespace godwit::data
