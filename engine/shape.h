// Shape: the extents of a tensor, at most six, stored inline.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>

namespace godwit {

// Extents, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 6;  // largest rank

  Shape() = default;  // a scalar: rank 0, one element
  Shape(std::initializer_list<int64_t> extents);
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }                                            // number of extents
  int64_t operator[](int i) const { return extents_[static_cast<size_t>(i)]; }  // extent i
  int64_t numel() const;                                                        // product of the extents
  bool operator==(const Shape& other) const = default;
  std::string str() const;  // "[8, 56, 56, 32]"

  const int64_t* begin() const { return extents_.data(); }        // iterator to the outermost extent
  const int64_t* end() const { return extents_.data() + rank_; }  // iterator past the innermost extent

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  // writes str()

}  // namespace godwit
