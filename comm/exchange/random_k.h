// Random-k (Stich et al. 2018): in each step, all ranks draw the same random coordinates, so that their values can be
// all-reduced.
#pragma once
#include "comm/exchange/method.h"

namespace godwit {

struct RandomKOptions {
  double density = 0.01;   // ⌈density·n⌉ values of a block of n values are sent
  int64_t block_size = 0;  // values per block, within a parameter; 0: one block per parameter
  // worker or none. With none, values are scaled by n/k, so that the mean is unbiased.
  ErrorFeedback error_feedback = ErrorFeedback::worker;

  void describe(OptionList& list);
};

}  // namespace godwit
