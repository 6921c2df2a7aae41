// SquadFeatures: questions with windows of their context, as BERT takes them: [CLS] question [SEP] context [SEP].
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/text/squad.h"
#include "data/text/text_dataset.h"
#include "data/text/wordpiece.h"
#include "data/thread_pool.h"

namespace godwit::data {

struct SquadOptions {
  int64_t length = 384;       // tokens of a window, with the question and three special tokens
  int64_t stride = 128;       // tokens of context from the beginning of a window to that of the next
  int64_t max_question = 64;  // the rest of a longer question is left out
  bool train = true;          // questions whose answers all cannot be used are left out
  int threads = 1;            // that prepare them
  ProgressFunction progress = {};
};

// A sample is a window. Its target is the first usable answer of the question: the tokens that hold its bytes; 0, 0
// ([CLS]) where the window does not hold all of them, or the question has no answer. Tokens of each context and
// question are kept once. The tables are the same for any number of threads.
class SquadFeatures : public TextDataset {
 public:
  struct Window {
    int32_t question;      // index into Squad::questions
    int32_t first, count;  // tokens of the context
    int32_t start, end;    // the answer's first and last token, counted from [CLS]; 0 where it is not in the window
  };

  // Keeps a reference to `squad`. Throws when the options leave no room for the context, and when no window is left.
  SquadFeatures(const Squad& squad, const WordPiece& tokenizer, SquadOptions options);

  int64_t size() const override { return static_cast<int64_t>(windows_.size()); }
  int64_t max_length() const override { return length_; }
  Targets targets() const override { return {.spans = true}; }
  int32_t pad() const override { return pad_; }
  uint64_t hash() const override { return hash_; }
  Extent measure(int64_t window, int64_t epoch) const override;
  TextSample read(int64_t window, int64_t epoch) const override;

  const Squad& squad() const { return squad_; }
  const Window& window(int64_t i) const { return windows_[static_cast<size_t>(i)]; }
  // A question's windows are [first_window(q), first_window(q + 1)).
  int64_t first_window(int64_t question) const { return first_window_[static_cast<size_t>(question)]; }
  int64_t left_out() const { return left_out_; }  // questions
  int64_t context_begin(int64_t window) const;    // the place of the first token of the context, counted from [CLS]
  // Of the question's windows that hold this token (counted in the context), is this the one with the most context on
  // its scantier side? Of equals the first.
  bool has_most_context(int64_t window, int64_t token) const;
  std::string_view text(int64_t window, int64_t start, int64_t end) const;  // of tokens counted from [CLS]

 private:
  struct Question {
    std::vector<int32_t> ids;
    std::vector<Window> windows;
  };
  Question prepare(const WordPiece& tokenizer, int64_t question, const SquadOptions& options) const;
  const std::vector<Token>& tokens(const Window& window) const;

  const Squad& squad_;
  int64_t length_;
  int32_t pad_, cls_, sep_;
  std::vector<std::vector<Token>> contexts_;
  std::vector<std::vector<int32_t>> questions_;
  std::vector<Window> windows_;
  std::vector<int64_t> first_window_{0};
  int64_t left_out_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace godwit::data
