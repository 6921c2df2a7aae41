// Segment: a range of elements of a bucket.
#pragma once
#include <cstdint>

namespace godwit {

// Elements [begin, end) of a bucket.
struct Segment {
  int64_t begin = 0, end = 0;                    // begin <= end
  int64_t numel() const { return end - begin; }  // number of elements
};

}  // namespace godwit
