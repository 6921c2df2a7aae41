#include "data/text/corpus.h"

#include <algorithm>

#include "data/file.h"
#include "data/text/bible.h"
#include "data/text/documents.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr uint64_t kMostCorpusBytes = uint64_t{64} << 30;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }

// The end of the sentence that begins at `begin`.
size_t sentence_end(const std::string& text, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (text[i] != '.' && text[i] != '!' && text[i] != '?') continue;
    size_t behind = i + 1;
    const auto closes = [&](std::string_view mark) { return text.compare(behind, mark.size(), mark) == 0; };
    for (bool more = true; more && behind < end;) {
      more = false;
      for (std::string_view mark : {".", "!", "?", "\"", "'", ")", "]", "”", "’"})
        if (!more && closes(mark)) behind += mark.size(), more = true;
    }
    behind = std::min(behind, end);
    size_t next = behind;
    while (next < end && is_blank(text[next])) ++next;
    if (next == end || (next > behind && !(text[next] >= 'a' && text[next] <= 'z'))) return behind;
    i = behind - 1;
  }
  return end;
}

}  // namespace

Corpus::Corpus(std::string text, Sentences rule, const std::string& name)
    : Corpus(std::make_shared<const std::string>(std::move(text))) {
  const std::string& all = *text_;
  size_t begin = 0;  // beginning of the document
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    if (std::all_of(all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(end),
                    is_blank)) {
      add_document(begin, at, rule);
      begin = std::min(end + 1, all.size());
    }
    at = end + 1;
  }
  add_document(begin, all.size(), rule);
  check(!spans_.empty(), name, ": holds no text");
}

void Corpus::add_document(size_t begin, size_t end, Sentences rule) {
  const size_t before = spans_.size();
  while (begin < end) {
    const size_t stop =
        rule == Sentences::lines ? std::min(text_->find('\n', begin), end) : sentence_end(*text_, begin, end);
    add_sentence(begin, stop);
    begin = std::max(stop, begin + 1);
  }
  if (spans_.size() > before) first_.push_back(sentences());
}

void Corpus::add_sentence(size_t begin, size_t end) {
  while (begin < end && is_blank((*text_)[begin])) ++begin;
  while (end > begin && is_blank((*text_)[end - 1])) --end;
  if (begin < end) spans_.push_back({begin, end - begin});
}

std::vector<int64_t> Corpus::lines() const {
  std::vector<int64_t> lines;
  int64_t line = 1;
  auto at = text_->begin();
  for (const Span& span : spans_) {
    const auto begin = text_->begin() + static_cast<std::ptrdiff_t>(span.begin);
    line += std::count(at, begin, '\n');
    at = begin;
    lines.push_back(line);
  }
  return lines;
}

std::pair<Corpus, Corpus> Corpus::hold_out(int64_t every) const {
  check(every >= 2, "corpus: hold_out is ", every, ", expected at least 2: every N-th document is held out");
  check(documents() >= every, "corpus: ", documents(), documents() == 1 ? " document" : " documents",
        " (separated by blank lines), too few to hold out one of ", every, " for evaluation");
  std::pair<Corpus, Corpus> parts{Corpus(text_), Corpus(text_)};
  for (int64_t d = 0; d < documents(); ++d) {
    Corpus& part = d % every == every - 1 ? parts.second : parts.first;
    part.spans_.insert(part.spans_.end(), spans_.begin() + first_sentence(d), spans_.begin() + first_sentence(d + 1));
    part.first_.push_back(part.sentences());
  }
  return parts;
}

Corpus read_corpus(const std::string& path, Sentences rule, InvalidUtf8* invalid) {
  check_plain_text(path);
  std::vector<uint8_t> bytes = read_unpacked(path, "a text file", kMostCorpusBytes);
  if (is_bible(bytes)) return Corpus(bible_text(bytes, path), Sentences::lines, path);
  std::string text(utf8_text(bytes, path));
  if (invalid) invalid->add(path, text, bytes.size() - text.size());
  return Corpus(std::move(text), rule, path);
}

}  // namespace godwit::data
