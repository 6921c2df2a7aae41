#include "autograd/ops/cast.h"

#include <gtest/gtest.h>

#include "autograd/accumulate.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace cast_test {

using test::random_tensor;
using test::values;

TEST(Cast, ConvertsTheValueAndCastsTheGradientBack) {
  for (int64_t n : {0, 1, 1001}) {
    const Var x(random_tensor({n}, DType::f32), true);
    const Var y = ops::cast(x, DType::bf16);
    EXPECT_EQ(y.dtype(), DType::bf16);
    EXPECT_EQ(values(y.value()), values(x.value().to(DType::bf16)));
    const Tensor dy = random_tensor({n}, DType::f32, 2).to(DType::bf16);
    test::backward_from(y, dy);
    EXPECT_EQ(x.grad().dtype(), DType::f32);
    EXPECT_EQ(values(x.grad()), values(dy));
  }
}

// float64 -> float32 -> float64: result and gradient are each rounded once, by at most 2^-24.
TEST(Cast, GradientThroughTwoCasts) {
  const Var x(random_tensor({33}), true);
  const Var y = ops::cast(ops::cast(x, DType::f32), DType::f64);
  EXPECT_EQ(values(y.value()), values(x.value().to(DType::f32)));
  test::backward_from(y, random_tensor({33}, DType::f64, 2));
  EXPECT_EQ(values(x.grad()), values(random_tensor({33}, DType::f64, 2).to(DType::f32)));
}

TEST(Cast, CastToTheSameTypeReturnsTheVariable) {
  const Var x(random_tensor({3}, DType::f32));
  EXPECT_TRUE(ops::cast(x, DType::f32) == x);
}

TEST(Cast, RefusesIntegersAndFloat16) {
  EXPECT_EQ(error_of([] { ops::cast(Var(Tensor::zeros({3})), DType::i32); }),
            "cast: converts between float32, bfloat16 and float64, not from float32 to int32");
  EXPECT_THROW(ops::cast(Var(Tensor::zeros({3}, DType::f16)), DType::f32), Error);
}

TEST(Accumulate, Bfloat16SumsRoundOnce) {
  for (int64_t n : {0, 1, 7, 70001}) {
    const Tensor x = random_tensor({n}, DType::f32, 1).to(DType::bf16);
    const Tensor y = random_tensor({n}, DType::f32, 2).to(DType::bf16), before = y.clone();
    accumulate(Cpu{}, x, y);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(y.item(i), double{bf16(static_cast<float>(before.item(i)) + static_cast<float>(x.item(i)))}) << i;
  }
}

}  // namespace cast_test
}  // namespace godwit
