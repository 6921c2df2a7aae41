// TextDataset: tokenized samples and their targets.
#pragma once
#include <cstdint>
#include <vector>

namespace godwit::data {

// A tokenized sample.
struct TextSample {
  std::vector<int32_t> ids;                              // includes [CLS] and [SEP], no padding
  int64_t first = 0;                                     // number of tokens of type 0; the following tokens have type 1
  int32_t label = 0;                                     // class, or next sentence (0: B follows A)
  int32_t start = 0, end = 0;                            // first and last token of the answer; (0, 0) if absent
  std::vector<int32_t> masked_positions, masked_labels;  // masked tokens in ascending order, and their original ids
};

// All functions are thread-safe and depend only on their arguments.
class TextDataset {
 public:
  struct Targets {  // the targets that samples have
    bool labels = false, spans = false, masked = false;  // label; start and end; masked tokens
  };
  struct Extent {  // size of a sample
    int64_t tokens, masked;  // number of tokens; number of masked tokens
  };

  virtual ~TextDataset() = default;
  virtual int64_t size() const = 0;        // number of samples
  virtual int64_t max_length() const = 0;  // maximum number of tokens of a sample
  virtual Targets targets() const = 0;     // targets present in the samples
  virtual int32_t pad() const = 0;         // id of padding
  virtual uint64_t hash() const = 0;       // hash of the contents; equal on ranks with the same data

  virtual Extent measure(int64_t sample, int64_t epoch) const = 0;   // size of the result of read(), much faster
  virtual TextSample read(int64_t sample, int64_t epoch) const = 0;  // tokens and targets of a sample
};

}  // namespace godwit::data
