// The places of large values.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/inline.h"

namespace godwit {

// Of finite numbers the one of larger magnitude has the larger bits without the sign.
inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

// How many of a block of n values are the largest ones that are sent: ⌈density·n⌉, at least 1.
GODWIT_INLINE inline int64_t largest_chosen(double density, int64_t n) {
  const auto k = static_cast<int64_t>(std::ceil(density * static_cast<double>(n)));
  return k < 1 ? 1 : k > n ? n : k;
}
constexpr int64_t kNarrowPlaces = 65536;  // the largest blocks whose places are sent in 16 bits; else in 32

constexpr int64_t kPlacesSlack = 16;

// places: i of x[n] with magnitude_bits(x[i]) >= least, ascending; room for n + kPlacesSlack. Returns how many. One thread.
int64_t places_of_at_least(const float* x, int64_t n, uint32_t least, uint32_t* places);

}  // namespace godwit
