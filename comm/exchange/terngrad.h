// TernGrad (Wen et al. 2017): −1, 0 or 1 times each block's largest magnitude, chosen stochastically.
#pragma once
#include "comm/exchange/block_exchange.h"

namespace godwit {

struct TernGradOptions {
  int64_t block_size = 1024;
  Reply reply = Reply::f32;
  double clip_sigma = 2.5;  // limit in units of a block's root mean square; 0: no clipping

  void describe(OptionList& list);
};

// The compressor: the block's largest magnitude times −1, 0 or 1. The choice is random, and its expectation is the
// value clipped to ±clip_sigma times the block's root mean square (0: no clipping).
std::unique_ptr<Compressor> terngrad_compressor(double clip_sigma);

}  // namespace godwit
