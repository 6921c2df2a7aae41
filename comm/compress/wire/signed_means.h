// Sums of a block's positive values and of its negative ones, in the order of comm/compress/wire/block_math.h.
#pragma once
#include <cstdint>

namespace godwit {

class SumsBySign {
 public:
  // The block's next n values, a multiple of 16 but at its end. One thread.
  void add(const float* x, int64_t n);

  double positive() const { return total(positive_, positive_pieces_); }
  double negative() const { return total(negative_, negative_pieces_); }

 private:
  static constexpr int64_t kLanes = 16;
  using Lanes = double[kLanes];
  void end_piece();
  double total(const Lanes& lanes, const Lanes& pieces) const;

  int64_t count_ = 0;                                  // of values
  Lanes positive_ = {}, negative_ = {};                // of the piece that is being added
  Lanes positive_pieces_ = {}, negative_pieces_ = {};  // of those before
};

}  // namespace godwit
