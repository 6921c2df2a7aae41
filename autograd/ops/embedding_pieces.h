// Splits the positions of each id into pieces that GPU blocks sum in parallel. Only embedding.cu includes this header.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace godwit::detail {

// Row row[r] has pieces [first[r], first[r + 1]). The rows are in ascending order. Piece p has positions order[k] for k
// in [piece[p], piece[p + 1]). The positions of one id are in ascending order.
struct EmbeddingPieces {
  static constexpr int32_t kLongest = 64;  // maximum number of positions per piece
  std::vector<int32_t> order, piece, first, row;

  EmbeddingPieces(std::span<const int32_t> ids, std::optional<int64_t> padding) : order(ids.size()) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
    if (padding) std::erase_if(order, [&](int32_t position) { return ids[position] == *padding; });
    const auto n = static_cast<int32_t>(order.size());
    for (int32_t k = 0; k < n; ++k) {
      const int32_t id = ids[order[k]];
      if (row.empty() || row.back() != id) {
        row.push_back(id);
        first.push_back(static_cast<int32_t>(piece.size()));
        piece.push_back(k);
      } else if (k - piece.back() == kLongest) {
        piece.push_back(k);
      }
    }
    first.push_back(static_cast<int32_t>(piece.size()));
    piece.push_back(n);
  }
};

}  // namespace godwit::detail
