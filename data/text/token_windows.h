// TokenWindows: the batches of a recurrent language model: consecutive windows of several streams of a tokenized text.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace godwit::data {

inline constexpr int32_t kNoLabel = -1;  // label of a position without a prediction

// Layout of the streams.
struct TokenWindowOptions {
  int64_t length = 35;   // number of tokens per window
  int64_t streams = 20;  // training: number of streams per rank; evaluation: number of streams of all ranks together
  int rank = 0, world = 1;
  bool train = true;  // true: streams of equal length; false: every token except the first is predicted once
};

// One window of all streams of a rank. t is the window's length, at most TokenWindowOptions::length.
struct TokenWindow {
  Tensor ids;               // int32 [t, streams], in order of time
  Tensor labels;            // int32 [t·streams]: the next token of each position, or kNoLabel (evaluation only)
  int64_t predictions = 0;  // number of labels that are not kNoLabel
};

// A text is cut into streams that are read in parallel. A model keeps its state from one window to the next. Training:
// the text is cut into world · streams equal parts of n tokens. Tokens at the end that do not fill a part are dropped.
// Rank r has the parts r · streams, …, and predicts n - 1 tokens of each, so that ranks have disjoint text and equal
// numbers of windows. Evaluation: the parts differ by at most one token, and the last token of a part predicts the
// first token of the next part. The union over the ranks does not depend on their number.
class TokenWindows {
 public:
  // Keeps a reference to the tokens. Throws if a length or a number is not positive, or if a training stream is too
  // short for one window of full length. If there are fewer predictions than streams, an evaluation has fewer streams.
  TokenWindows(std::span<const int32_t> tokens, const TokenWindowOptions& options);

  int64_t windows() const { return windows_; }              // number of windows of this rank per pass
  int64_t streams() const { return std::ssize(streams_); }  // number of streams of this rank; may be 0 in an evaluation
  int64_t predictions() const { return predictions_; }      // number of predictions of this rank per pass
  // Sets the next window, 0 … windows(). Throws for another number.
  void start(int64_t window = 0);
  std::optional<TokenWindow> next();                        // empty after the last window

 private:
  struct Stream {
    int64_t begin, predictions;  // position of the first input; number of predictions
  };

  std::span<const int32_t> tokens_;
  int64_t length_;
  std::vector<Stream> streams_;
  int64_t longest_ = 0, windows_ = 0, predictions_ = 0, next_ = 0;
};

}  // namespace godwit::data
