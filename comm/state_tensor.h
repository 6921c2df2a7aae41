// Persistent state of an optimizer or an exchange, identified by a name and a global parameter offset.
#pragma once
#include <cstdint>
#include <string>

#include "engine/tensor.h"

namespace godwit {

// State of the elements [begin, end()) of the parameter vector (global offsets, no padding). A u32 tensor is a bit
// mask: 32 elements per word, least significant bit first, unused bits 0.
struct StateTensor {
  std::string name;   // such as "m" or "server_e"
  int64_t begin;      // global offset
  Tensor values;      // the state, or its bit mask
  bool replicated;    // whether the state is bit-identical on all ranks
  int64_t bits = -1;  // number of elements of a bit mask

  bool is_mask() const { return values.dtype() == DType::u32; }                // whether values is a bit mask
  int64_t end() const { return begin + (is_mask() ? bits : values.numel()); }  // global offset after the last element
};

}  // namespace godwit
