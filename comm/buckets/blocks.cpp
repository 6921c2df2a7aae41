#include "comm/buckets/blocks.h"

#include <algorithm>

#include "comm/group.h"

namespace godwit {

void BlockLayout::cut_blocks(const Bucket& bucket, int64_t block_size) {
  check(block_size >= 0, "blocks: the block size is ", block_size,
        "; expected a number of values, or 0 for whole parameters");
  for (const Slot& slot : bucket.slots) {
    const int64_t size = block_size > 0 ? block_size : std::max<int64_t>(slot.numel, 1);
    for (int64_t at = 0; at < slot.numel; at += size) starts_.push_back(slot.offset + at);
  }
  starts_.push_back(bucket.numel);
}

BlockLayout::BlockLayout(const Bucket& bucket, int64_t block_size, const std::vector<Segment>& segments) {
  cut_blocks(bucket, block_size);
  for (const Segment& segment : segments) {
    check(segment.begin == (cuts_.empty() ? 0 : cuts_.back()) && segment.end >= segment.begin,
          "blocks: the segment [", segment.begin, ", ", segment.end, ") does not continue the segments before it, ",
          "which end at ", cuts_.empty() ? 0 : cuts_.back());
    if (cuts_.empty()) cuts_.push_back(0);
    cuts_.push_back(segment.end);
  }
  check(!cuts_.empty() && cuts_.back() == bucket.numel, "blocks: the segments do not cover the bucket's ", bucket.numel,
        " values");
}

BlockLayout::BlockLayout(const Bucket& bucket, int64_t block_size, int segments) {
  check(segments >= 1, "blocks: ", segments, " segments; there must be at least one");
  cut_blocks(bucket, block_size);
  // Each cut is the block boundary nearest to the even cut.
  for (int i = 0; i <= segments; ++i) {
    const int64_t even = part_begin(bucket.numel, segments, i);
    const auto after = std::lower_bound(starts_.begin(), starts_.end(), even);
    const bool before_is_nearer = after != starts_.begin() && even - *(after - 1) < *after - even;
    cuts_.push_back(before_is_nearer ? *(after - 1) : *after);
  }
}

BlockLayout BlockLayout::whole(const Bucket& bucket, int segments) {
  check(segments >= 1, "blocks: ", segments, " segments; there must be at least one");
  BlockLayout layout;
  if (bucket.numel > 0) layout.starts_.push_back(0);
  layout.starts_.push_back(bucket.numel);
  const int64_t words = (bucket.numel + 31) / 32;
  for (int i = 0; i <= segments; ++i)
    layout.cuts_.push_back(std::min(32 * part_begin(words, segments, i), bucket.numel));
  return layout;
}

std::vector<Segment> BlockLayout::parts(int i) const {
  const Segment range = segment(i);
  std::vector<Segment> result;
  auto next = std::upper_bound(starts_.begin(), starts_.end(), range.begin);
  for (int64_t at = range.begin; at < range.end; at = *next++) result.push_back({at, std::min(*next, range.end)});
  return result;
}

int64_t BlockLayout::longest() const {
  int64_t most = 0;
  for (int i = 0; i < segments(); ++i) most = std::max(most, segment(i).numel());
  return most;
}

int64_t BlockLayout::most_parts() const {
  size_t most = 0;
  for (int i = 0; i < segments(); ++i) most = std::max(most, parts(i).size());
  return static_cast<int64_t>(most);
}

}  // namespace godwit
