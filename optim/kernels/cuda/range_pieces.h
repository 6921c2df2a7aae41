// Ranges of a tensor, cut into pieces of equal size for kernels that process all ranges in one launch.
#pragma once
#include <vector>

#include "comm/segment.h"
#include "engine/cuda/launch.h"
#include "engine/tensor.h"

namespace godwit {

// A table on the thread's GPU. Only the last piece of a range may have fewer than kValues elements.
class RangePieces {
 public:
  static constexpr int64_t kValues = 4096;
  struct Entry {
    int64_t begin, end, first;  // a range, and the index of its first piece
  };
  struct Piece {
    int64_t range, begin, end;  // index of the range; its elements [begin, end)
  };
  // The argument of kernels.
  struct Table {
    const Entry* entries;
    int64_t ranges, pieces;
    __device__ Piece operator[](int64_t piece) const {
      int64_t low = 0, high = ranges;  // binary search for the last range that begins at or before this piece
      while (high - low > 1) (entries[(low + high) / 2].first <= piece ? low : high) = (low + high) / 2;
      const int64_t begin = entries[low].begin + (piece - entries[low].first) * kValues;
      return {low, begin, begin + kValues < entries[low].end ? begin + kValues : entries[low].end};
    }
  };

  explicit RangePieces(const std::vector<Segment>& ranges) : ranges_(static_cast<int64_t>(ranges.size())) {
    std::vector<int64_t> values;
    for (const Segment& range : ranges) {
      values.insert(values.end(), {range.begin, range.end, pieces_});
      pieces_ += (range.numel() + kValues - 1) / kValues;
    }
    memory_ = Tensor::of(values, {3 * ranges_});
  }

  int64_t pieces() const { return pieces_; }
  Table table() const {
    static_assert(sizeof(Entry) == 3 * sizeof(int64_t));
    return {reinterpret_cast<const Entry*>(memory_.cuda_data<int64_t>()), ranges_, pieces_};
  }

 private:
  int64_t ranges_, pieces_ = 0;
  Tensor memory_;
};

}  // namespace godwit
