// PretrainingSource: masked language model and next-sentence samples, drawn anew in each epoch from a corpus.
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
  int64_t length = 128;         // tokens of a sample at most, with three special tokens
  double masked = 0.15;         // of a sample's tokens, special ones included in the count
  int64_t max_predictions = 0;  // masked tokens of a sample at most; 0: as many as `masked` of the length
  double short_samples = 0.1;   // fraction whose length is drawn, uniformly, up to the largest
  uint64_t seed = 0;
  int threads = 1;  // that tokenise
  ProgressFunction progress = {};
};

// [CLS] A [SEP] B [SEP]. Documents are cut, once for all epochs, into runs of consecutive sentences that fill a sample
// (longer sentences are first cut into halves of one); sample i stands on run i. Everything else is drawn by (seed,
// epoch, sample), as in BERT's own preparation: where A ends; whether B is what follows (label 0) or, in half of the
// samples, text from a random sentence on of another document (label 1; of any place, when there is one document only;
// always, when the sample takes but one sentence of it); which ends lose tokens when A and B are too long; the masked
// tokens, never special ones: 80 % become [MASK], 10 % any token of the vocabulary, 10 % stay as they are.
class PretrainingSource : public TextDataset {
 public:
  // Throws when the options make no sense and when the corpus has no tokens.
  PretrainingSource(const Corpus& corpus, const WordPiece& tokenizer, PretrainingOptions options);

  int64_t size() const override { return static_cast<int64_t>(runs_.size()); }
  int64_t max_length() const override { return options_.length; }
  Targets targets() const override { return {.labels = true, .masked = true}; }
  int32_t pad() const override { return pad_; }
  uint64_t hash() const override { return hash_; }
  Extent measure(int64_t sample, int64_t epoch) const override;
  TextSample read(int64_t sample, int64_t epoch) const override;

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }  // of the corpus

 private:
  struct Run {
    int64_t first, count;  // sentences
    int32_t document;
  };
  struct Range {
    int64_t begin, end;  // tokens of the corpus
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
  int64_t room_;  // for A and B
  int32_t pad_, cls_, sep_, mask_, vocabulary_;
  std::vector<int32_t> tokens_;        // of the corpus
  std::vector<int64_t> sentences_{0};  // the first token of each, and the end
  std::vector<int64_t> documents_{0};  // the first sentence of each, and the end
  std::vector<Run> runs_;
  uint64_t hash_ = 0;
};

}  // namespace godwit::data
