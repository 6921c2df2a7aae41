// Sums for loops that vector_for compiles. The order of the sums is fixed, so results are identical on every machine.
#pragma once
#include "engine/vector_loop.h"

namespace godwit {

// Adds the upper half of the lanes to the lower half until one lane is left. Overwrites the lanes.
template <class C, size_t kLanes>
GODWIT_INLINE inline C fold_lanes(C (&lanes)[kLanes]) {
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

// Sums term(i) over [begin, end): term i is added to lane (i − begin) mod kLanes, then the lanes are folded.
template <int64_t kLanes, class Term>
GODWIT_INLINE inline double lane_sum(int64_t begin, int64_t end, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  for (int64_t j = 0; i + j < end; ++j) lanes[j] += term(i + j);
  return fold_lanes(lanes);
}

// Sums term(c) over [begin, end) in type C: 16 partial sums with stride 16, four terms at a time, then a pairwise
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
  return fold_lanes(lanes);
}

}  // namespace godwit
