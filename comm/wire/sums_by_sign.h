// Sums of a block's positive values and of its negative ones, in the order of comm/wire/block_math.h.
#pragma once
#include <cstdint>

namespace godwit {

class SumsBySign {
 public:
  // The block's next n values, a multiple of 16 but at its end. One thread.
  void add(const float* x, int64_t n);

  double positive() const { return total(positive_); }
  double negative() const { return total(negative_); }

 private:
  static constexpr int64_t kLanes = 16;
  static double total(const double* lanes);

  double positive_[kLanes] = {}, negative_[kLanes] = {};
};

}  // namespace godwit
