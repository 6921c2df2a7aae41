// Row sums for loops that vector_for compiles. The order of summation is fixed, so results are the same on every
// machine.
#pragma once
#include "engine/vector_loop.h"

namespace godwit {

// Σ term(c) over [begin, end) in type C: 16 partial sums with stride 16, four terms at a time, then a pairwise
// reduction.
template <class C, class Term>
GODWIT_INLINE inline C row_sum(int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kLanes = 16;
  C lanes[kLanes] = {};
  int64_t c = begin;
  for (; c + 4 * kLanes <= end; c += 4 * kLanes)
    for (int64_t l = c; l < c + kLanes; ++l)
      lanes[l - c] += (term(l) + term(l + kLanes)) + (term(l + 2 * kLanes) + term(l + 3 * kLanes));
  for (; c < end; c += kLanes)
    for (int64_t l = c; l < std::min(end, c + kLanes); ++l) lanes[l - c] += term(l);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

}  // namespace godwit
