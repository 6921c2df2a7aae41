#include "autograd/ops/normalization/rms_norm.h"

#include <limits>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace rms_norm_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

TEST(RmsNorm, Gradients) {
  for (const auto& [n, width] : {std::pair{1, 1}, {3, 5}, {35, 3}, {2, 35}})
    check_gradients([](const auto& in) { return ops::rms_norm(in[0], in[1], 0.1); },
                    {random_tensor({n, width}), random_tensor({width}, DType::f64, 2)});
  const Var gamma(random_tensor({5}, DType::f64, 2)), x(random_tensor({3, 5}));
  check_gradients([&](const auto& in) { return ops::rms_norm(in[0], gamma, 1e-6); }, {random_tensor({3, 5})});
  check_gradients([&](const auto& in) { return ops::rms_norm(x, in[0], 1e-6); }, {random_tensor({5})});
}

// y, dx and d_gamma
std::vector<Tensor> run(const Tensor& x, const Tensor& gamma, const Tensor& dy) {
  const Var a(x, true), b(gamma, true), y = ops::rms_norm(a, b, 1e-6);
  test::backward_from(y, dy);
  return {y.value(), a.grad(), b.grad()};
}

TEST(RmsNorm, EqualsTheDefinition) {
  for (const auto& [n, width] : {std::pair{1, 1}, {3, 16}, {5, 31}, {33, 64}, {67, 257}, {4, 3000}}) {
    const Tensor x = random_tensor({n, width}, DType::f32, 1, 5), gamma = random_tensor({width}, DType::f32, 2);
    const Tensor dy = random_tensor({n, width}, DType::f32, 3);
    const auto single = run(x, gamma, dy), wide = run(x.to(DType::f64), gamma.to(DType::f64), dy.to(DType::f64));
    for (int64_t i = 0; i < n; ++i) {
      double squares = 0;
      for (int64_t c = 0; c < width; ++c) squares += std::pow(x.item(i * width + c), 2) / width;
      for (int64_t c = 0; c < width; ++c) {
        const double expected = x.item(i * width + c) / std::sqrt(squares + 1e-6) * gamma.item(c);
        ASSERT_NEAR(wide[0].item(i * width + c), expected, 1e-13);
        ASSERT_NEAR(single[0].item(i * width + c), expected, 1e-5);  // some roundings of values up to 20
      }
    }
    for (size_t r = 1; r < 3; ++r)  // sums of up to 67 terms of order 1
      for (int64_t i = 0; i < wide[r].numel(); ++i) ASSERT_NEAR(single[r].item(i), wide[r].item(i), 4e-5) << r;
  }
}

TEST(RmsNorm, Bfloat16RoundsTheFloat32ResultOnce) {
  const Tensor x = random_tensor({9, 100}).to(DType::bf16), gamma = random_tensor({100}, DType::f32, 2);
  const Tensor dy = random_tensor({9, 100}, DType::f64, 3).to(DType::bf16);
  const auto half = run(x, gamma, dy), single = run(x.to(DType::f32), gamma, dy.to(DType::f32));
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(values(half[r]), values(single[r].to(half[r].dtype()))) << r;
  EXPECT_EQ(half[0].dtype(), DType::bf16);
}

TEST(RmsNorm, SameBitsOnAnyThreadCountAndVectorWidth) {
  const Tensor x = random_tensor({200, 333}, DType::f32), gamma = random_tensor({333}, DType::f32, 2);
  const Tensor dy = random_tensor({200, 333}, DType::f32, 3);
  auto all = [&] {
    std::vector<std::vector<double>> result;
    for (const Tensor& t : run(x, gamma, dy)) result.push_back(values(t));
    return result;
  };
  expect_same_bits_everywhere(all, {2, 3, 7});
}

TEST(RmsNorm, NaNAffectsOnlyItsRow) {
  const Tensor x = random_tensor({3, 20}, DType::f32);
  x.data<float>()[25] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = ops::rms_norm(Var(x), Var(Tensor::full({20}, 1)), 1e-6).value();
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y.item(i)), i / 20 == 1) << i;
}

TEST(RmsNorm, NamesInvalidArguments) {
  const auto message = [](const Tensor& x, const Tensor& gamma, double eps = 1e-6) {
    return error_of([&] { ops::rms_norm(Var(x), Var(gamma), eps); });
  };
  const Tensor x = Tensor::zeros({2, 8}), good = Tensor::zeros({8});
  EXPECT_EQ(message(Tensor::zeros({8}), good), "rms_norm: x must be [n, width], got [8]");
  EXPECT_EQ(message(x, Tensor::zeros({9})), "rms_norm: gamma must be float32 [8], got float32 [9]");
  EXPECT_EQ(message(x.to(DType::bf16), good.to(DType::bf16)), "rms_norm: gamma must be float32 [8], got bfloat16 [8]");
  EXPECT_EQ(message(x, good, -1), "rms_norm: eps must be finite and not negative, got -1");
}

}  // namespace rms_norm_test
}  // namespace godwit
