// ZeRO++ (Wang et al. 2023): sends gradients in 4 bits to the owners of shards, and parameters in 8 bits to all ranks.
#pragma once
#include "comm/exchange/block_exchange.h"

namespace godwit {

struct ZeroppOptions {
  int64_t block_size = 1024;  // values per scale of gradients and of parameters

  void describe(OptionList& list);
};

}  // namespace godwit
