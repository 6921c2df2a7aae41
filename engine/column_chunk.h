// How sums over the rows of a matrix are cut.
#pragma once
#include <algorithm>
#include <cstdint>

namespace godwit {

// Rows that are added by themselves, in order, before these sums are.
inline int64_t column_chunk(int64_t rows) {
  constexpr int64_t kChunks = 512, kLeast = 32;
  return std::max(kLeast, (rows + kChunks - 1) / kChunks);
}

}  // namespace godwit
