#include "engine/vector_math.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "engine/row_sum.h"

namespace godwit {
namespace vector_math_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(VectorMath, ExpHasTheStatedRelativeAccuracy) {
  double worst = 0;
  for (int i = -86900; i <= 88000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f, low = -1e-4f * x;
    const double two = static_cast<double>(x) + static_cast<double>(low);
    worst = std::max(worst, std::abs(exp_below(x) / std::exp(static_cast<double>(x)) - 1));
    if (x > -20) worst = std::max(worst, std::abs(exp_below(x, low) / std::exp(two) - 1));
    ASSERT_EQ(exp_of(x), exp_below(x)) << x;
  }
  EXPECT_LT(worst, 1.8 * 0x1p-24);
  EXPECT_EQ(exp_below(0.0f), 1);
}

TEST(VectorMath, ExpOfExtremes) {
  for (const float x : {-87.0f, -100.0f, -3e38f, -kInfinity}) {
    EXPECT_EQ(exp_below(x), 0) << x;
    EXPECT_EQ(exp_of(x), 0) << x;
  }
  for (const float x : {88.73f, 200.0f, 3e38f, kInfinity}) EXPECT_EQ(exp_of(x), kInfinity) << x;
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_NEAR(exp_of(88.72f), std::exp(88.72f), 1e-6 * std::exp(88.72f));
  EXPECT_TRUE(std::isnan(exp_below(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(exp_below(-800.0), 0);
  EXPECT_EQ(exp_below(1.0, 0.5), std::exp(1.5));
}

TEST(VectorMath, ChooseSelectsBitForBit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(choose(true, -0.0f, nan), 0);
  EXPECT_TRUE(std::signbit(choose(true, -0.0f, nan)));
  EXPECT_TRUE(std::isnan(choose(false, -0.0f, nan)));
  EXPECT_EQ(choose(false, 1.0, 2.0), 2);
}

TEST(RowSum, IsAccurateForEveryLengthAndHasTheSameBitsForEveryVectorWidth) {
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1 / static_cast<float>(i + 3);
  for (const int64_t n : {0, 1, 15, 16, 17, 63, 64, 65, 200, 1000}) {
    double exact = 0;
    for (int64_t i = n / 3; i < n; ++i) exact += static_cast<double>(x[static_cast<size_t>(i)]);
    auto sum = [&](int bits) {
      const ContextGuard guard([&](Context& next) { next.vector_bits = bits; });
      float result = 0;
      vector_for(1, 1, [&, data = x.data()](int64_t, int64_t) GODWIT_INLINE {
        result = row_sum<float>(n / 3, n, [=](int64_t i) GODWIT_INLINE { return data[i]; });
      });
      return result;
    };
    EXPECT_NEAR(sum(512), exact, 24 * 0x1p-24 * exact) << n << ": at most 24 sequential additions";
    EXPECT_EQ(sum(128), sum(512)) << n;
    EXPECT_EQ(sum(256), sum(512)) << n;
  }
}

}  // namespace vector_math_test
}  // namespace godwit
