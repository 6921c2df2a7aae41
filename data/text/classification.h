// ClassificationDataset: a TextDataset of labeled, tokenized sentences of the form [CLS] sentence [SEP].
#pragma once
#include <cstdint>
#include <vector>

#include "data/text/text_dataset.h"
#include "data/text/tsv_dataset.h"
#include "data/text/wordpiece.h"
#include "data/thread_pool.h"

namespace godwit::data {

struct ClassificationOptions {
  int64_t length = 128;  // maximum number of tokens, including two special ones; longer sentences are truncated
  int threads = 1;       // number of threads that tokenize
  ProgressFunction progress = {};
};

// Samples of a classifier. They are tokenized once.
class ClassificationDataset : public TextDataset {
 public:
  // Tokenizes all sentences.
  ClassificationDataset(const TsvDataset& text, const WordPiece& tokenizer, const ClassificationOptions& options);

  int64_t size() const override { return std::ssize(sentences_); }  // number of sentences
  int64_t max_length() const override { return length_; }
  Targets targets() const override { return {.labels = true}; }
  int32_t pad() const override { return pad_; }
  uint64_t hash() const override { return hash_; }
  Extent measure(int64_t sample, int64_t epoch) const override;
  TextSample read(int64_t sample, int64_t epoch) const override;  // ids and label; independent of the epoch

  int64_t classes() const { return classes_; }  // number of classes
  int64_t cut() const { return cut_; }          // number of truncated sentences

 private:
  int64_t length_, classes_, cut_ = 0;
  int32_t pad_, cls_, sep_;
  std::vector<std::vector<int32_t>> sentences_;
  std::vector<int32_t> labels_;
  uint64_t hash_ = 0;
};

}  // namespace godwit::data
