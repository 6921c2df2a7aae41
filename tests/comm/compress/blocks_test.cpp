#include "comm/buckets/blocks.h"

#include <gtest/gtest.h>

#include <set>

namespace godwit {
namespace blocks_test {

Buckets buckets_of(const std::vector<int64_t>& sizes, int64_t bytes = 1 << 30) {
  std::vector<Parameter> parameters;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size)  // parameters are laid out in reverse order
    parameters.push_back({"p" + std::to_string(parameters.size()), Var(Tensor::zeros({*size}), true)});
  return Buckets(parameters, {bytes, bytes, 1});
}

std::set<int64_t> global_starts(const Buckets& buckets, int64_t size, int segments) {
  std::set<int64_t> starts;
  for (const Bucket& bucket : buckets) {
    const BlockLayout layout(bucket, size, segments);
    for (int64_t i = 0; i < layout.blocks(); ++i) starts.insert(bucket.begin + layout.block(i).begin);
  }
  return starts;
}

TEST(BlockLayout, SplitsEveryParameterFromItsBeginning) {
  const Buckets buckets = buckets_of({10, 3, 8});
  const BlockLayout layout(buckets[0], 4, 1);
  std::vector<std::pair<int64_t, int64_t>> blocks;
  for (int64_t i = 0; i < layout.blocks(); ++i) blocks.push_back({layout.block(i).begin, layout.block(i).end});
  const std::vector<std::pair<int64_t, int64_t>> expected{{0, 4}, {4, 8}, {8, 10}, {10, 13}, {13, 17}, {17, 21}};
  EXPECT_EQ(blocks, expected);
  EXPECT_EQ(BlockLayout(buckets[0], 0, 2).blocks(), 3) << "block size 0: whole parameters";
}

// Pitfall 14: the values that share a scale must not depend on the bucket size or the number of ranks.
TEST(BlockLayout, Pitfall14BlocksDoNotDependOnBucketsOrSegments) {
  const std::vector<int64_t> sizes{100, 1, 64, 33, 152, 7};
  for (const int64_t block : {0, 1, 16, 64}) {
    const std::set<int64_t> expected = global_starts(buckets_of(sizes), block, 1);
    for (const int64_t bytes : {4, 400, 700})
      for (const int segments : {1, 3, 8})
        EXPECT_EQ(global_starts(buckets_of(sizes, bytes), block, segments), expected);
  }
}

TEST(BlockLayout, SegmentsCoverAllBlocksInOrder) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{1}, {5}, {100, 1, 64, 152}, {1000, 1}, {1, 1000}, {0, 3}})
    for (const int64_t block : {0, 1, 7, 32})
      for (const int segments : {1, 2, 3, 8}) {
        const Buckets buckets = buckets_of(sizes);
        const BlockLayout layout(buckets[0], block, segments);
        int64_t at = 0, blocks = 0, longest = 0;
        for (int i = 0; i < segments; ++i) {
          EXPECT_EQ(layout.segment(i).begin, at);
          for (const Segment& part : layout.parts(i)) {
            EXPECT_EQ(part.begin, at);
            at = part.end;
            EXPECT_EQ(layout.block(blocks).begin, part.begin);
            EXPECT_EQ(layout.block(blocks++).end, part.end);
          }
          EXPECT_EQ(layout.segment(i).end, at);
          longest = std::max(longest, layout.segment(i).numel());
        }
        EXPECT_EQ(at, buckets[0].numel);
        EXPECT_EQ(blocks, layout.blocks());
        EXPECT_EQ(longest, layout.longest());
        // Each end differs from an even split by at most half a block.
        const int64_t largest_block = block > 0 ? block : 1000;
        EXPECT_LE(longest, (at + segments - 1) / segments + largest_block);
      }
}

TEST(BlockLayout, ASegmentEndsAtTheLaterOfTwoEquallyNearBlocks) {
  const Buckets buckets = buckets_of({60});
  EXPECT_EQ(BlockLayout(buckets[0], 20, 2).segment(0).end, 40) << "20 and 40 are 10 values from the even split";
}

TEST(BlockLayout, WholeIsOneBlockSplitIntoEvenSegments) {
  for (const int64_t n : {1, 31, 33, 1000})
    for (const int segments : {1, 2, 3, 8}) {
      const Buckets buckets = buckets_of({n});
      const BlockLayout layout = BlockLayout::whole(buckets[0], segments);
      EXPECT_EQ(layout.blocks(), 1);
      int64_t at = 0;
      for (int i = 0; i < segments; ++i) {
        EXPECT_EQ(layout.segment(i).begin, at);
        at = layout.segment(i).end;
        EXPECT_EQ(layout.parts(i).size(), layout.segment(i).numel() > 0 ? 1u : 0u);
      }
      EXPECT_EQ(at, n);
    }
}

}  // namespace blocks_test
}  // namespace godwit
