// State that an optimizer or an exchange keeps from step to step, named by global parameter offset.
#pragma once
#include <cstdint>
#include <string>

#include "engine/tensor.h"

namespace godwit {

// Belongs to the parameter vector's elements [begin, begin + values.numel()) (global offsets), without padding; u32: its
// bits to 32 elements a word, from the lowest bit on, and 0 behind the last.
struct StatePart {
  std::string name;  // "m", "b", "e", "server_e"
  int64_t begin;
  Tensor values;
  bool replicated;  // the same bits on all ranks
};

}  // namespace godwit
