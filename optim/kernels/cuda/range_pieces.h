// Ranges of a tensor, cut into pieces of equal size for kernels that process all ranges in one launch.
#pragma once
#include <vector>

#include "comm/segment.h"
#include "engine/cuda/reduce.h"
#include "engine/tensor.h"

namespace godwit {

// A table on the thread's GPU. Only the last piece of a range may have fewer than kValues elements.
class RangePieces {
 public:
  static constexpr int64_t kValues = 4096;
  struct Entry {
    int64_t begin, end, first, decays;  // a range, the index of its first piece, and whether weight decay applies
  };
  struct Piece {
    int64_t range, begin, end;  // index of the range; elements [begin, end) of the piece
    bool decays;
  };
  // The argument of kernels.
  struct Table {
    const Entry* entries;
    int64_t ranges, pieces;
    __device__ Piece operator[](int64_t piece) const {
      int64_t low = 0, high = ranges;  // binary search for the last range that begins at or before this piece
      while (high - low > 1) (entries[(low + high) / 2].first <= piece ? low : high) = (low + high) / 2;
      const int64_t begin = entries[low].begin + (piece - entries[low].first) * kValues;
      const int64_t end = begin + kValues < entries[low].end ? begin + kValues : entries[low].end;
      return {low, begin, end, entries[low].decays != 0};
    }
  };

  // decays: for each range; by default, all false.
  explicit RangePieces(const std::vector<Segment>& ranges, const std::vector<bool>& decays = {})
      : ranges_(static_cast<int64_t>(ranges.size())) {
    std::vector<int64_t> values;
    for (size_t i = 0; i < ranges.size(); ++i) {
      values.insert(values.end(), {ranges[i].begin, ranges[i].end, pieces_, !decays.empty() && decays[i]});
      pieces_ += (ranges[i].numel() + kValues - 1) / kValues;
    }
    memory_ = Tensor::of(values, {4 * ranges_});
  }

  int64_t pieces() const { return pieces_; }
  Table table() const {
    static_assert(sizeof(Entry) == 4 * sizeof(int64_t));
    return {reinterpret_cast<const Entry*>(memory_.cuda_data<int64_t>()), ranges_, pieces_};
  }

 private:
  int64_t ranges_, pieces_ = 0;
  Tensor memory_;
};

// Calls f.operator()<n>(i) for the elements [i, i + n) of a piece. The threads of a block share the calls. n is kWidth
// from element `first`, first + kWidth, …, and 1 for elements that fill no such pack.
template <int kWidth, class F>
__device__ void for_packs(const RangePieces::Piece& piece, int64_t first, const F& f) {
  const auto [range, begin, end, decays] = piece;
  const int64_t aligned = begin <= first ? first : begin + ((first - begin) & (kWidth - 1));
  const int64_t packs = aligned < end ? aligned : end, rest = packs + ((end - packs) & ~int64_t{kWidth - 1});
  for (int64_t i = packs + kWidth * threadIdx.x; i < rest; i += kWidth * blockDim.x) f.template operator()<kWidth>(i);
  for (int64_t i = begin + threadIdx.x; i < packs; i += blockDim.x) f.template operator()<1>(i);
  for (int64_t i = rest + threadIdx.x; i < end; i += blockDim.x) f.template operator()<1>(i);
}

// sums[0] ← Σ term(false, i)² and sums[second] ← Σ term(true, i)² over the elements of a piece, in the order of
// squares_of_ranges(). The first warp of a block adds.
template <class Term>
__device__ void piece_squares(const RangePieces::Piece& piece, const Term& term, double* sums, int64_t second) {
  constexpr int kLanes = 8;
  if (threadIdx.x >= 32) return;
  const bool is_second = threadIdx.x / kLanes % 2 != 0;  // threads 16 to 31 repeat the work of threads 0 to 15
  double sum = 0;
#pragma unroll 16
  for (int64_t i = piece.begin + threadIdx.x % kLanes; i < piece.end; i += kLanes) {
    const auto value = static_cast<double>(term(is_second, i));
    sum = sum + value * value;
  }
  for (int other = 1; other < kLanes; other *= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, other);
  if (threadIdx.x == 0) sums[0] = sum;
  if (threadIdx.x == kLanes) sums[second] = sum;
}

// Calls f(i, first, last, a, b) for each range i, with its pieces [first, last) and the sums over them of sums[0,
// pieces) and of sums[pieces, 2·pieces), in order. The first warp of a block handles one range at a time; its threads
// call f together. a and b are valid in its first thread.
template <class F>
__device__ void for_range_sums(const RangePieces::Table& table, const double* sums, const F& f) {
  constexpr int kLanes = 16, kAhead = 8;  // threads per sum; loads in flight per thread
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (threadIdx.x < 2 * kLanes)
    for (int64_t i = blockIdx.x; i < table.ranges; i += gridDim.x) {
      const int64_t first = table.entries[i].first;
      const int64_t last = i + 1 < table.ranges ? table.entries[i + 1].first : table.pieces;
      const double* const of_pieces = sums + threadIdx.x / kLanes * table.pieces;
      double sum = 0;
      for (int64_t start = first + lane; start - lane < last; start += kLanes * kAhead) {
        double ahead[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          const int64_t p = start + k * kLanes;
          ahead[k] = p < last ? of_pieces[p] : 0;
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k)
#pragma unroll
          for (int from = 0; from < kLanes; ++from) sum += __shfl_sync(0xFFFFFFFFu, ahead[k], from, kLanes);
      }
      f(i, first, last, sum, __shfl_xor_sync(0xFFFFFFFFu, sum, kLanes));
    }
}

// The largest of values[first, last), at least 0, ignoring NaN. The threads of a warp call it together; all get the
// result.
__device__ inline float warp_largest(const float* values, int64_t first, int64_t last) {
  float most = 0;
  for (int64_t i = first + threadIdx.x % 32; i < last; i += 32) most = Larger{}(most, values[i]);
  for (int mask = 16; mask > 0; mask /= 2) most = Larger{}(most, __shfl_xor_sync(0xFFFFFFFFu, most, mask));
  return most;
}

}  // namespace godwit
