// Inside embedding.cu: the positions of each id, cut into pieces that blocks of a GPU add up side by side.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace godwit::detail {

// Positions of one id, in their order, are order[k] for k in [piece[p], piece[p + 1]) of its pieces p, which are
// [first[r], first[r + 1]) for row[r]; rows ascend.
struct EmbeddingPieces {
  static constexpr int32_t kLongest = 64;  // positions of a piece
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
