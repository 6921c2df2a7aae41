#include "autograd/ops/prepend_token.h"

#include <gmock/gmock.h>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace prepend_token_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

Var prepend(const std::vector<Var>& in) { return ops::prepend_token(in[0], in[1], in[2]); }

TEST(PrependToken, Gradients) {
  for (const auto& [n, length, width] : {std::tuple{1, 1, 1}, {2, 4, 3}, {3, 5, 17}})
    check_gradients(prepend, {random_tensor({n, length, width}), random_tensor({1, 1, width}, DType::f64, 2),
                              random_tensor({1, length + 1, width}, DType::f64, 3)});
  check_gradients(prepend, {random_tensor({2, 0, 3}), random_tensor({3}, DType::f64, 2),
                            random_tensor({1, 3}, DType::f64, 3)});
}

TEST(PrependToken, AddsThePositions) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const DType type = compute_dtype(dtype);
    const int64_t n = 3, length = 5, width = 19;
    const Tensor x = random_tensor({n, length, width}).to(dtype);
    const Tensor token = random_tensor({width}, DType::f64, 2).to(type);
    const Tensor positions = random_tensor({length + 1, width}, DType::f64, 3).to(type);
    const Tensor y = ops::prepend_token(Var(x), Var(token), Var(positions)).value();
    ASSERT_EQ(y.shape(), (Shape{n, length + 1, width}));
    ASSERT_EQ(y.dtype(), dtype);
    for (int64_t i = 0, at = 0; i < n; ++i)
      for (int64_t p = 0; p <= length; ++p)
        for (int64_t k = 0; k < width; ++k, ++at) {
          const double before = p == 0 ? token.item(k) : x.item((i * length + p - 1) * width + k);
          const Tensor sum = Tensor::full({1}, before + positions.item(p * width + k), DType::f64);
          const double unit = dtype == DType::bf16 ? 0x1p-8 : 0x1p-23;
          EXPECT_NEAR(y.item(at), sum.item(), unit * std::abs(sum.item())) << "rounded once";
        }
  }
}

// The gradients of the parameters are float32 sums of bfloat16 gradients.
TEST(PrependToken, SumsBfloat16InFloat32) {
  const int64_t n = 300, width = 3;
  const Var x(random_tensor({n, 2, width}).to(DType::bf16), true), token(Tensor::zeros({1, 1, width}), true);
  const Var positions(Tensor::zeros({1, 3, width}), true);
  const Var y = ops::prepend_token(x, token, positions);
  const Tensor dy = random_tensor(y.shape()).to(DType::bf16);
  test::backward_from(y, dy);
  ASSERT_EQ(token.grad().dtype(), DType::f32);
  for (int64_t k = 0; k < 3 * width; ++k) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += dy.item(i * 3 * width + k);
    EXPECT_NEAR(positions.grad().item(k), sum, 1e-5);
    if (k < width) {
      EXPECT_EQ(token.grad().item(k), positions.grad().item(k));
    }
  }
}

TEST(PrependToken, SameBitsOnAnyThreadCount) {
  const auto run = [] {
    const Var x(random_tensor({5, 40, 129}, DType::f32), true), token(random_tensor({129}, DType::f32, 2), true);
    const Var positions(random_tensor({41, 129}, DType::f32, 3), true);
    const Var y = ops::prepend_token(x, token, positions);
    test::backward_from(y, y.value());
    return std::vector{values(y.value()), values(x.grad()), values(token.grad()), values(positions.grad())};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(2, run));
}

TEST(PrependToken, NamesInvalidArguments) {
  const auto error = [](Shape x, Shape token, Shape positions, DType dtype = DType::f32) {
    return error_of([&] {
      ops::prepend_token(Var(Tensor::zeros(x)), Var(Tensor::zeros(token, dtype)), Var(Tensor::zeros(positions)));
    });
  };
  EXPECT_THAT(error({2, 3}, {3}, {4, 3}), ::testing::HasSubstr("x must be [n, length, width]"));
  EXPECT_THAT(error({2, 3, 4}, {3}, {4, 4}), ::testing::HasSubstr("token must be [1, 4]"));
  EXPECT_THAT(error({2, 3, 4}, {4}, {3, 4}), ::testing::HasSubstr("positions must be [4, 4]"));
  EXPECT_THAT(error({2, 3, 4}, {4}, {4, 4}, DType::f64), ::testing::HasSubstr("token must be float32"));
  EXPECT_THAT(error({0, 3, 4}, {4}, {4, 4}), ::testing::HasSubstr("nothing to compute"));
}

}  // namespace prepend_token_test
}  // namespace godwit
