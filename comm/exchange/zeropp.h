// ZeRO++ (Wang et al. 2023): 4-bit gradients to sharded owners, 8-bit parameters back.
#pragma once
#include "comm/exchange/block_exchange.h"

namespace godwit {

struct ZeroppOptions {
  int64_t block_size = 1024;  // of gradients and of parameters

  void describe(OptionList& list);
};

}  // namespace godwit
