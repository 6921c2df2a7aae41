// QSGD (Alistarh et al. 2017): integer levels in units of each block's L2 norm, rounded stochastically.
#pragma once
#include "comm/exchange/block_exchange.h"

namespace godwit {

struct QsgdOptions {
  int64_t block_size = 1024;
  Reply reply = Reply::f32;
  ErrorFeedback error_feedback = ErrorFeedback::none;
  int64_t levels = 7;  // number of positive levels, and of negative levels

  void describe(OptionList& list);
  void check() const;  // throws if reply and error_feedback contradict each other
};

// The compressor: the block's L2 norm and, for each value, an integer level in −levels … levels in units of
// norm/levels. Rounding is stochastic, so the expectation is the value. 1 <= levels <= 127.
std::unique_ptr<Compressor> qsgd_compressor(int64_t levels);

}  // namespace godwit
