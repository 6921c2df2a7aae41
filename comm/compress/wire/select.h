// Selects the values of largest magnitude.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/inline.h"

namespace godwit {

// Bits of x without the sign. They are larger for larger magnitudes of finite values.
inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

// Number of values that top-k sends for a block of n values: ⌈density·n⌉, at least 1.
GODWIT_INLINE inline int64_t largest_chosen(double density, int64_t n) {
  const auto k = static_cast<int64_t>(std::ceil(density * static_cast<double>(n)));
  return k < 1 ? 1 : k > n ? n : k;
}
constexpr int64_t kNarrowIndices = 65536;  // blocks up to this size send 16-bit indices, longer ones 32-bit indices

constexpr int64_t kIndicesSlack = 16;  // extra room in `indices` beyond n elements

// Writes the indices i of x[n] with magnitude_bits(x[i]) >= least to `indices`, in ascending order. Returns the number
// of indices. `indices` needs room for n + kIndicesSlack elements. Single-threaded.
int64_t indices_of_at_least(const float* x, int64_t n, uint32_t least, uint32_t* indices);

}  // namespace godwit
