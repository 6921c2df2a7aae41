// Blocks: ranges of values that share a scale on the wire, and the segments of whole blocks that ranks own.
#pragma once
#include <vector>

#include "comm/parallel/bucket.h"

namespace godwit {

// Every parameter is cut into blocks of `block_size` values (its last one may be shorter; 0: one block a parameter), so
// blocks are ranges of the global parameter offset, whatever the bucket, the segments and the number of ranks are. A
// bucket's segments are as even as whole blocks allow; some may be empty. Padding belongs to no block.
class BlockLayout {
 public:
  BlockLayout(const Bucket& bucket, int64_t block_size, int segments);
  // The same blocks; its segments are those given, which follow each other and cover the bucket.
  BlockLayout(const Bucket& bucket, int64_t block_size, const std::vector<Segment>& segments);
  // One block for the whole bucket, which even segments cut (at multiples of 32 values): a sender has one scale.
  static BlockLayout whole(const Bucket& bucket, int segments);

  int64_t blocks() const { return static_cast<int64_t>(starts_.size()) - 1; }
  Segment block(int64_t i) const { return {starts_[static_cast<size_t>(i)], starts_[static_cast<size_t>(i) + 1]}; }

  int segments() const { return static_cast<int>(cuts_.size()) - 1; }
  Segment segment(int i) const { return {cuts_[static_cast<size_t>(i)], cuts_[static_cast<size_t>(i) + 1]}; }
  // The parts of blocks that lie in segment i, in order, cut at its ends.
  std::vector<Segment> parts(int i) const;

  // Of the largest segment: messages to and from all segments have its size, so that collectives stay uniform.
  int64_t longest() const;
  int64_t most_parts() const;

 private:
  BlockLayout() = default;
  void cut_blocks(const Bucket& bucket, int64_t block_size);

  std::vector<int64_t> starts_;  // of the blocks, then the bucket's numel
  std::vector<int64_t> cuts_;    // of the segments, then numel
};

}  // namespace godwit
