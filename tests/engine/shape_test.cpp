#include "engine/shape.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support.h"

namespace godwit {
namespace shape_test {

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().str(), "[]");
  const Shape shape{8, 56, 56, 32};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[3], 32);
  EXPECT_EQ(shape.numel(), 8 * 56 * 56 * 32);
  EXPECT_EQ(shape.str(), "[8, 56, 56, 32]");
  EXPECT_EQ((Shape{3, 0, 5}).numel(), 0);
}

TEST(Shape, ComparesRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
  EXPECT_NE(Shape(), (Shape{0}));
}

TEST(Shape, RefusesInvalidExtents) {
  EXPECT_NO_THROW((Shape{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(error_of([] { Shape{1, 1, 1, 1, 1, 1, 1}; }), "shape: rank 7 is above the limit of 6");
  EXPECT_EQ(error_of([] { Shape{2, -1}; }), "shape: extent -1 is negative");
  const int64_t large = int64_t{1} << 32, most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(error_of([&] { Shape{large, large}; }), "shape: too many elements");
  EXPECT_EQ((Shape{1, most}).numel(), most);
}

}  // namespace shape_test
}  // namespace godwit
