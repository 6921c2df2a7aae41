// Blocks: ranges of values that share a scale when compressed. Segments: runs of blocks that one rank owns.
#pragma once
#include <vector>

#include "comm/buckets/bucket.h"

namespace godwit {

// Cuts every parameter into blocks of `block_size` values; the last block of a parameter may be shorter. 0: one block
// per parameter. Blocks do not depend on buckets, segments or the number of ranks. Padding belongs to no block.
class BlockLayout {
 public:
  // Creates `segments` segments of whole blocks, as even as the blocks allow. Some segments may be empty. Throws if
  // block_size < 0 or segments < 1.
  BlockLayout(const Bucket& bucket, int64_t block_size, int segments);
  // Uses the given segments, which must be consecutive and cover the bucket. Segment bounds may cut blocks.
  BlockLayout(const Bucket& bucket, int64_t block_size, const std::vector<Segment>& segments);
  // One block for the whole bucket, cut into even segments at multiples of 32 values. Each sender thus has one scale.
  static BlockLayout whole(const Bucket& bucket, int segments);

  int64_t blocks() const { return static_cast<int64_t>(starts_.size()) - 1; }  // number of blocks
  // Values of block i.
  Segment block(int64_t i) const { return {starts_[static_cast<size_t>(i)], starts_[static_cast<size_t>(i) + 1]}; }

  int segments() const { return static_cast<int>(cuts_.size()) - 1; }  // number of segments
  // Values of segment i.
  Segment segment(int i) const { return {cuts_[static_cast<size_t>(i)], cuts_[static_cast<size_t>(i) + 1]}; }
  // Intersections of segment i with the blocks, in order.
  std::vector<Segment> parts(int i) const;

  // Number of values of the longest segment. The messages of all segments have this size, so that collectives are
  // uniform.
  int64_t longest() const;
  int64_t most_parts() const;  // largest number of parts() of a segment

 private:
  BlockLayout() = default;
  void cut_blocks(const Bucket& bucket, int64_t block_size);

  std::vector<int64_t> starts_;  // first value of each block, then bucket.numel
  std::vector<int64_t> cuts_;    // first value of each segment, then bucket.numel
};

}  // namespace godwit
