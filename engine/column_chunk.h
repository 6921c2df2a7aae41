// Chunk size for deterministic column sums.
#pragma once
#include <algorithm>
#include <cstdint>

namespace godwit {

// Rows per chunk. Each chunk is summed in row order; the chunk sums are then added.
inline int64_t column_chunk(int64_t rows) {
  constexpr int64_t kChunks = 512, kLeast = 32;
  return std::max(kLeast, (rows + kChunks - 1) / kChunks);
}

}  // namespace godwit
