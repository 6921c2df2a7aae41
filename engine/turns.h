// The alternating formulas of update_by_turns().
#pragma once
#include <cstdint>

#include "engine/inline.h"

namespace godwit::detail {

template <class F>
struct Turns {
  F formulas[2];
  GODWIT_INLINE F of(int64_t part) const { return formulas[part & 1]; }
};

}  // namespace godwit::detail
