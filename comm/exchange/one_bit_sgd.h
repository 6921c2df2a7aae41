// 1-bit SGD (Seide et al. 2014): signs and two means per block, with error feedback.
#pragma once
#include "comm/exchange/block_exchange.h"

namespace godwit {

struct OneBitSgdOptions {
  int64_t block_size = 1024;
  Reply reply = Reply::coded;
  ErrorFeedback error_feedback = ErrorFeedback::both;

  void describe(OptionList& list);
  void check() const;  // throws if reply and error_feedback contradict each other
};

// The compressor: the signs, and the means of the block's values >= 0 and of its values < 0.
std::unique_ptr<Compressor> one_bit_compressor();

}  // namespace godwit
