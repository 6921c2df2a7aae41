// Corpus: plain text for pre-training, split into documents and sentences.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/invalid_utf8.h"

namespace godwit::data {

enum class Sentences {  // how a text is split into sentences
  lines,  // one sentence per line
  // Joins lines. A sentence ends after . ! ? and closing quotes or brackets, if a space follows and then a character
  // other than a … z.
  split,
};

// A text with its documents and sentences. Copies share the text.
class Corpus {
 public:
  // Blank lines separate documents. Sentences are not blank, and every document has at least one sentence. Throws an
  // Error that contains `name` if there is no text.
  Corpus(std::string text, Sentences rule, const std::string& name = "corpus");

  int64_t documents() const { return static_cast<int64_t>(first_.size()) - 1; }  // number of documents
  int64_t sentences() const { return static_cast<int64_t>(spans_.size()); }      // number of sentences
  // The sentences of a document d are [first_sentence(d), first_sentence(d + 1)).
  int64_t first_sentence(int64_t document) const { return first_[static_cast<size_t>(document)]; }
  std::string_view sentence(int64_t i) const {  // text of sentence i
    const auto [begin, length] = spans_[static_cast<size_t>(i)];
    return std::string_view(*text_).substr(begin, length);
  }

  std::vector<int64_t> lines() const;  // [sentence]: the line of the text in which the sentence begins, counted from 1

  // Splits the corpus into two parts. The second part has every `every`-th document, beginning with document `every` -
  // 1; the first part has all other documents. Throws if there are fewer than `every` documents.
  std::pair<Corpus, Corpus> hold_out(int64_t every) const;

 private:
  struct Span {
    size_t begin, length;  // bytes
  };
  explicit Corpus(std::shared_ptr<const std::string> text) : text_(std::move(text)) {}
  void add_document(size_t begin, size_t end, Sentences rule);
  void add_sentence(size_t begin, size_t end);

  std::shared_ptr<const std::string> text_;
  std::vector<Span> spans_;
  std::vector<int64_t> first_{0};
};

// Reads a text file, plain or gzip, or the King James Bible of the Debian package bible-kjv-text (chapters are
// documents, verses are lines). Adds the text's invalid UTF-8 to `invalid` if `invalid` is not null. Throws one Error
// that names the file, also for a file whose name indicates JSON or JSONL.
Corpus read_corpus(const std::string& path, Sentences rule = Sentences::lines, InvalidUtf8* invalid = nullptr);

}  // namespace godwit::data
