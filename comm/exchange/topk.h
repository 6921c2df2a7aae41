// Top-k (Stich et al. 2018): the values of largest magnitude of each block and their positions, with error feedback.
#pragma once
#include "comm/exchange/block_exchange.h"

namespace godwit {

struct TopKOptions {
  double density = 0.01;  // ⌈density·n⌉ values of a block of n values are sent
  int64_t block_size = 0;
  Reply reply = Reply::all_gather;
  ErrorFeedback error_feedback = ErrorFeedback::worker;

  void describe(OptionList& list);
  void check() const;  // throws if reply and error_feedback contradict each other
};

// The compressor: the ⌈density·n⌉ values of largest magnitude in a block of n values, and their indices.
// 0 < density <= 1.
std::unique_ptr<Compressor> topk_compressor(double density);

}  // namespace godwit
