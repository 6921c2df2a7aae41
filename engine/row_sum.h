// Sums over a row for loops that vector_for compiles: partial sums in one order, the same on every machine.
#pragma once
#include "engine/vector_loop.h"

namespace godwit {

// Σ term(c) over [begin, end) in C: 16 sums of every 16th term each, then those by halves.
template <class C, class Term>
GODWIT_INLINE inline C row_sum(int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kLanes = 16;
  C lanes[kLanes] = {};
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(c + l);
  for (int64_t l = 0; c + l < end; ++l) lanes[l] += term(c + l);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

}  // namespace godwit
