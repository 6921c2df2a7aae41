// Separate sums of a block's positive and negative values, in the order of comm/compress/wire/block_math.h.
#pragma once
#include <cstdint>

namespace godwit {

// The two sums of a block, in float64.
class SumsBySign {
 public:
  // Adds the block's next n values. n must be a multiple of 16, except at the end of the block. Single-threaded.
  void add(const float* x, int64_t n);

  double positive() const { return total(positive_, positive_pieces_); }  // sum of the values above 0
  double negative() const { return total(negative_, negative_pieces_); }  // sum of the values below 0

 private:
  static constexpr int64_t kLanes = 16;
  using Lanes = double[kLanes];
  void end_piece();
  double total(const Lanes& lanes, const Lanes& pieces) const;

  int64_t count_ = 0;                                  // number of values added
  Lanes positive_ = {}, negative_ = {};                // sums of the current piece
  Lanes positive_pieces_ = {}, negative_pieces_ = {};  // sums of the previous pieces
};

}  // namespace godwit
