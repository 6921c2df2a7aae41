// Selects values of large magnitude.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/inline.h"

namespace godwit {

// Bits without the sign: larger for larger magnitudes of finite values.
inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

// Number of values that top-k sends of a block of n: ⌈density·n⌉, at least 1.
GODWIT_INLINE inline int64_t largest_chosen(double density, int64_t n) {
  const auto k = static_cast<int64_t>(std::ceil(density * static_cast<double>(n)));
  return k < 1 ? 1 : k > n ? n : k;
}
constexpr int64_t kNarrowIndices = 65536;  // blocks up to this size send indices in 16 bits, longer ones in 32

constexpr int64_t kIndicesSlack = 16;  // room that indices_of_at_least() needs beyond n

// Writes the indices i of x[n] with magnitude_bits(x[i]) >= least to `indices`, ascending, and returns their number.
// `indices` needs room for n + kIndicesSlack. Single-threaded.
int64_t indices_of_at_least(const float* x, int64_t n, uint32_t least, uint32_t* indices);

}  // namespace godwit
