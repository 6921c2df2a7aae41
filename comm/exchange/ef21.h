// EF21 (Richtárik et al. 2021): each rank keeps an estimate of its gradient and sends compressed changes of the
// estimate.
#pragma once
#include <string>
#include <vector>

#include "comm/exchange/block_exchange.h"

namespace godwit {

struct Ef21Options {
  enum class Compressor { topk, one_bit };   // compressor of the changes
  Compressor compressor = Compressor::topk;  // largest values, or signs with two means per block
  double density = 0.01;                     // topk: ⌈density·n⌉ values of a block of n values are sent
  int64_t block_size = 0;                    // values per block, within a parameter; 0: one block per parameter
  Reply reply = Reply::all_gather;           // all_gather or f32

  void describe(OptionList& list);
};
inline std::vector<std::string> choices_of(Ef21Options::Compressor) { return {"topk", "one_bit"}; }

}  // namespace godwit
