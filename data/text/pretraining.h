// PretrainingDataset: samples for masked language modeling and next-sentence prediction. They are drawn from a corpus
// anew in every epoch.
#pragma once
#include <cstdint>
#include <vector>

#include "data/text/corpus.h"
#include "data/text/text_dataset.h"
#include "data/text/wordpiece.h"
#include "data/thread_pool.h"
#include "engine/philox.h"

namespace godwit::data {

struct PretrainingOptions {
  int64_t length = 128;         // maximum number of tokens in a sample, including three special ones
  double masked = 0.15;         // fraction of a sample's tokens to mask; special tokens are included in the count
  int64_t max_predictions = 0;  // maximum number of masked tokens per sample; 0: masked · length
  double short_samples = 0.1;   // fraction of samples with a random target length, uniform up to the maximum
  uint64_t seed = 0;            // seed of the random draws
  int threads = 1;              // number of threads that tokenize
  ProgressFunction progress = {};
};

// Samples are [CLS] A [SEP] B [SEP]. Documents are split once into runs of consecutive sentences that fill a sample.
// Sentences longer than half a sample are cut first. Sample i uses run i. The rest is drawn from (seed, epoch, sample),
// as in the original BERT preprocessing:
// - A ends at a random sentence.
// - B is the text after A (label 0) or random text (label 1). It is random in half of the samples, and whenever only
//   one sentence of the run is used. Random text starts at a random sentence of another document, or anywhere if there
//   is only one document.
// - If A and B are too long, tokens are removed from the longer one at random ends.
// - Special tokens are never masked. Of the masked tokens, 80 % become [MASK], 10 % become a random token of the
//   vocabulary, and 10 % stay unchanged.
class PretrainingDataset : public TextDataset {
 public:
  // Throws if an option is out of range, or if the corpus has no tokens.
  PretrainingDataset(const Corpus& corpus, const WordPiece& tokenizer, PretrainingOptions options);

  int64_t size() const override { return static_cast<int64_t>(runs_.size()); }
  int64_t max_length() const override { return options_.length; }
  Targets targets() const override { return {.labels = true, .masked = true}; }
  int32_t pad() const override { return pad_; }
  uint64_t hash() const override { return hash_; }
  Extent measure(int64_t sample, int64_t epoch) const override;
  TextSample read(int64_t sample, int64_t epoch) const override;

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }  // number of tokens in the corpus

 private:
  struct Run {
    int64_t first, count;  // range of sentences
    int32_t document;
  };
  struct Range {
    int64_t begin, end;  // range of tokens in the corpus
    int64_t size() const { return end - begin; }
  };
  struct Plan {
    Range a, b;
    int32_t label;
  };
  void tokenize(const Corpus& corpus, const WordPiece& tokenizer);
  void cut_runs();
  Plan plan(int64_t sample, int64_t epoch) const;
  Range sentences(int64_t first, int64_t last) const;
  Range random_text(int32_t document, int64_t size, RandomStream& random) const;
  int64_t predictions(int64_t tokens) const;
  void mask(TextSample& text, int64_t sample, int64_t epoch) const;

  PretrainingOptions options_;
  int64_t room_;  // number of tokens for A and B
  int32_t pad_, cls_, sep_, mask_, vocabulary_;
  std::vector<int32_t> tokens_;        // ids of the whole corpus
  std::vector<int64_t> sentences_{0};  // first token of each sentence, and the end of the last one
  std::vector<int64_t> documents_{0};  // first sentence of each document, and the end of the last one
  std::vector<Run> runs_;
  uint64_t hash_ = 0;
};

}  // namespace godwit::data
