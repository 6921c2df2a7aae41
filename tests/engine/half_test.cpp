#include "engine/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/tensor.h"

namespace godwit {
namespace half_test {

const float kInfinity = std::numeric_limits<float>::infinity();

// All finite values of a 16-bit type from 0 upward, in ascending order.
template <class H>
std::vector<float> magnitudes() {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x8000u; ++bits) {
    H h;
    h.bits = static_cast<uint16_t>(bits);
    if (std::isfinite(static_cast<float>(h))) values.push_back(h);
  }
  return values;
}

template <class H>
class Half : public ::testing::Test {};
using Types = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(Half, Types);

TYPED_TEST(Half, EveryValueRoundTripsThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    TypeParam h;
    h.bits = static_cast<uint16_t>(bits);
    const float value = h;
    if (std::isnan(value)) EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(value)))) << bits;
    else EXPECT_EQ(TypeParam(value).bits, h.bits) << bits;
  }
}

TYPED_TEST(Half, RoundsToTheNearerNeighborAndTiesToEven) {
  const std::vector<float> values = magnitudes<TypeParam>();
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (static_cast<double>(values[i]) + static_cast<double>(values[i + 1])) / 2;
    const auto tie = static_cast<float>(middle);
    if (static_cast<double>(tie) != middle) continue;  // below float32's subnormal range
    const float even = i % 2 == 0 ? values[i] : values[i + 1];
    for (float sign : {1.f, -1.f}) {
      EXPECT_EQ(static_cast<float>(TypeParam(sign * tie)), sign * even) << tie;
      EXPECT_EQ(static_cast<float>(TypeParam(sign * std::nextafter(tie, 0.f))), sign * values[i]) << tie;
      EXPECT_EQ(static_cast<float>(TypeParam(sign * std::nextafter(tie, kInfinity))), sign * values[i + 1]) << tie;
    }
  }
}

TYPED_TEST(Half, KeepsZerosInfinitiesAndNaN) {
  EXPECT_TRUE(std::signbit(static_cast<float>(TypeParam(-0.f))));
  EXPECT_EQ(static_cast<float>(TypeParam(kInfinity)), kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(-kInfinity)), -kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(std::numeric_limits<float>::max())), kInfinity);
  float nan = 0;
  for (uint32_t bits : {0x7F800001u, 0xFFC00000u, 0x7FFFFFFFu}) {
    std::memcpy(&nan, &bits, sizeof nan);
    EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(nan)))) << bits;
  }
}

TEST(HalfTensor, ConvertsAndReadsValues) {
  const Tensor x = Tensor::of<float>({1, -2.5f, 65520, 3e38f, 1.00390625f}, {5});
  EXPECT_EQ(x.to(DType::bf16).to(DType::f32).to_vector<float>(),
            (std::vector<float>{1, -2.5f, 65536, static_cast<float>(bf16(3e38f)), 1}));
  EXPECT_EQ(x.to(DType::f16).to(DType::f64).to_vector<double>(),
            (std::vector<double>{1, -2.5, kInfinity, kInfinity, 1.00390625}));
  EXPECT_EQ(x.to(DType::f16).item(1), -2.5);
  EXPECT_EQ(Tensor::full({3}, 0.1, DType::bf16).item(2), 0.10009765625);
  EXPECT_EQ(Tensor({3}, DType::bf16).bytes(), 6);
}

}  // namespace half_test
}  // namespace godwit
