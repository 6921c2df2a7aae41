// signSGD with majority vote (Bernstein et al. 2019).
#pragma once
#include "comm/exchange/method.h"

namespace godwit {

// The gradient becomes +1 where at least half of the ranks have a gradient >= 0, otherwise −1. The ranks send signs to
// the owners, which count them and send the majority to all ranks. Buckets must be padded to a multiple of 32·ranks.
struct SignSgdOptions {
  void describe(OptionList&) {}
};

}  // namespace godwit
