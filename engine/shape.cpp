#include "engine/shape.h"

#include <limits>

#include "engine/check.h"

namespace godwit {

Shape::Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const int64_t> extents) {
  check(extents.size() <= kMaxRank, "shape: rank ", extents.size(), " is above the limit of ", kMaxRank);
  int64_t total = 1;
  for (int64_t extent : extents) {
    check(extent >= 0, "shape: extent ", extent, " is negative");
    check(extent == 0 || total <= std::numeric_limits<int64_t>::max() / extent, "shape: too many elements");
    total *= extent;
    extents_[static_cast<size_t>(rank_++)] = extent;
  }
}

int64_t Shape::numel() const {
  int64_t total = 1;
  for (int64_t extent : *this) total *= extent;
  return total;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

}  // namespace godwit
