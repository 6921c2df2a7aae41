// Corpus: plain text for pre-training, cut into documents and sentences.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace godwit::data {

enum class Sentences {
  lines,  // each line is one
  split,  // cut behind . ! ? (and closing quotes and brackets) before a space and anything but a small letter a … z;
          // lines are joined
};

class Corpus {
 public:
  // Blank lines part documents. No sentence is blank, no document without one. Throws when there is no text at all,
  // naming `name`.
  Corpus(std::string text, Sentences rule, const std::string& name = "corpus");

  int64_t documents() const { return static_cast<int64_t>(first_.size()) - 1; }
  int64_t sentences() const { return static_cast<int64_t>(spans_.size()); }
  // A document's sentences are [first_sentence(d), first_sentence(d + 1)).
  int64_t first_sentence(int64_t document) const { return first_[static_cast<size_t>(document)]; }
  std::string_view sentence(int64_t i) const {
    const auto [begin, length] = spans_[static_cast<size_t>(i)];
    return std::string_view(*text_).substr(begin, length);
  }

  // Two parts: the second has every `every`-th document (from the last of the first `every` on), the first the others.
  // Throws unless both get one.
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

// A text file, plain or gzip, or the King James Bible as the Debian package bible-kjv-text keeps it: chapters are its
// documents, verses its lines. Throws one Error naming the file.
Corpus read_corpus(const std::string& path, Sentences rule = Sentences::lines);

}  // namespace godwit::data
