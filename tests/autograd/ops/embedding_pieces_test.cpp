#include "autograd/ops/embedding_pieces.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/philox.h"

namespace godwit {
namespace embedding_pieces_test {

// Walks the rows, their pieces and the pieces' positions: every position of every id must occur once, in order.
void check(const std::vector<int32_t>& ids, std::optional<int64_t> padding) {
  const detail::EmbeddingPieces pieces(ids, padding);
  std::map<int32_t, std::vector<int32_t>> expected, found;
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != padding) expected[ids[i]].push_back(static_cast<int32_t>(i));
  for (size_t r = 0; r < pieces.row.size(); ++r) {
    EXPECT_LT(pieces.first[r], pieces.first[r + 1]);
    for (int32_t p = pieces.first[r]; p < pieces.first[r + 1]; ++p) {
      const int32_t begin = pieces.piece[static_cast<size_t>(p)], end = pieces.piece[static_cast<size_t>(p) + 1];
      EXPECT_GT(end, begin);
      EXPECT_LE(end - begin, 64);
      for (int32_t k = begin; k < end; ++k) found[pieces.row[r]].push_back(pieces.order[static_cast<size_t>(k)]);
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(EmbeddingPieces, ContainEveryPositionOnce) {
  check({}, std::nullopt);
  check({5}, std::nullopt);
  check({5}, 5);
  for (const int32_t n : {63, 64, 65, 128, 129, 1000})
    check(std::vector<int32_t>(static_cast<size_t>(n), 3), std::nullopt);
  RandomStream random(1, Purpose::test);
  for (const uint32_t rows : {2u, 7u, 500u}) {
    std::vector<int32_t> ids(777);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(rows));
    check(ids, std::nullopt);
    check(ids, 1);
  }
}

}  // namespace embedding_pieces_test
}  // namespace godwit
