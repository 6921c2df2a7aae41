// SquadFeatures: questions with windows of their contexts, as input of BERT: [CLS] question [SEP] context [SEP].
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
  int64_t length = 384;       // number of tokens of a window, including the question and three special tokens
  int64_t stride = 128;       // number of context tokens between the starts of consecutive windows
  int64_t max_question = 64;  // maximum number of tokens of a question; longer questions are truncated
  bool train = true;          // whether to skip questions without a usable answer
  int threads = 1;            // number of threads that tokenize
  ProgressFunction progress = {};
};

// A sample is a window. Its target is the token range of the question's first usable answer. The target is (0, 0),
// which is [CLS], if the window does not contain the complete answer or there is none. Tokens of each context and
// question are stored once. The result does not depend on the number of threads.
class SquadFeatures : public TextDataset {
 public:
  struct Window {  // a part of a context, with its question
    int32_t question;      // index into Squad::questions
    int32_t first, count;  // token range in the context
    int32_t start, end;    // first and last token of the answer, counted from [CLS]; 0 if absent
  };

  // Keeps a reference to `squad`. Throws if the options leave no room for the context, or if there are no windows.
  SquadFeatures(const Squad& squad, const WordPiece& tokenizer, SquadOptions options);

  int64_t size() const override { return static_cast<int64_t>(windows_.size()); }  // number of windows
  int64_t max_length() const override { return length_; }
  Targets targets() const override { return {.spans = true}; }
  int32_t pad() const override { return pad_; }
  uint64_t hash() const override { return hash_; }
  Extent measure(int64_t window, int64_t epoch) const override;
  TextSample read(int64_t window, int64_t epoch) const override;  // ids and target; independent of the epoch

  const Squad& squad() const { return squad_; }  // the dataset
  // Window i, in the order of the questions.
  const Window& window(int64_t i) const { return windows_[static_cast<size_t>(i)]; }
  // The windows of a question q are [first_window(q), first_window(q + 1)).
  int64_t first_window(int64_t question) const { return first_window_[static_cast<size_t>(question)]; }
  int64_t left_out() const { return left_out_; }  // number of skipped questions
  int64_t context_begin(int64_t window) const;    // position of the first context token, counted from [CLS]
  // True if this window has the largest min(left context, right context) + 0.01 · window size among the windows of the
  // question that contain this context token. Ties go to the first window.
  bool has_most_context(int64_t window, int64_t token) const;
  std::string_view text(int64_t window, int64_t start, int64_t end) const;  // source text of tokens counted from [CLS]

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
