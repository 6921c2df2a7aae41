// What a text loader draws from: tokenised samples, and what is to be learnt from them.
#pragma once
#include <cstdint>
#include <vector>

namespace godwit::data {

struct TextSample {
  std::vector<int32_t> ids;                              // with [CLS] and [SEP], without padding
  int64_t first = 0;                                     // tokens of type 0; those behind are of type 1
  int32_t label = 0;                                     // class, or next sentence: 0 = it is the next
  int32_t start = 0, end = 0;                            // first and last token of the answer; 0, 0: it is not here
  std::vector<int32_t> masked_positions, masked_labels;  // tokens to be told, ascending, and what they are
};

// Every function may be called from several threads at once and is a pure function of its arguments.
class TextDataset {
 public:
  struct Targets {
    bool labels = false, spans = false, masked = false;
  };
  struct Extent {
    int64_t tokens, masked;
  };

  virtual ~TextDataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t max_length() const = 0;  // of any sample
  virtual Targets targets() const = 0;     // what its samples hold
  virtual int32_t pad() const = 0;         // id
  virtual uint64_t hash() const = 0;       // of the content: equal on ranks that agree

  virtual Extent measure(int64_t sample, int64_t epoch) const = 0;  // of what read() gives, in far less time
  virtual TextSample read(int64_t sample, int64_t epoch) const = 0;
};

}  // namespace godwit::data
