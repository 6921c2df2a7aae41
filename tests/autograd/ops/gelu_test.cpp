#include "autograd/ops/gelu.h"

#include <limits>
#include <numbers>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace gelu_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double value_of(double x, bool tanh) {
  if (!tanh) return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double derivative_of(double x, bool tanh) {
  if (!tanh) {
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  }
  const double factor = 2 * std::sqrt(2 / std::numbers::pi), u = factor * (x + 0.044715 * x * x * x);
  const double s = 1 / (1 + std::exp(-u));
  return s + x * s / (1 + std::exp(u)) * factor * (1 + 3 * 0.044715 * x * x);
}

// From far below zero to far above, dense near zero, with small numbers of both signs.
Tensor inputs() {
  std::vector<float> x;
  for (int i = -20000; i <= 20000; ++i) x.push_back(static_cast<float>(i) * 1.0007e-3f);
  for (float size = 1e-38f; size < 1; size *= 1.7f) x.push_back(size), x.push_back(-size);
  return Tensor::of(x, {static_cast<int64_t>(x.size())});
}

TEST(Gelu, Gradients) {
  for (const bool tanh : {false, true})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{3, 5}})
      check_gradients([=](const auto& in) { return ops::gelu(in[0], tanh); }, {random_tensor(shape, DType::f64, 1, 2)});
}

TEST(Gelu, Float32HasItsRelativeAccuracyInBothTails) {
  const Tensor x = inputs(), y(x.shape()), dx(x.shape()), one = Tensor::full(x.shape(), 1);
  gelu_forward(Cpu{}, x, Gelu::erf, y);
  gelu_backward(Cpu{}, x, one, Gelu::erf, dx);
  double worst = 0, worst_derivative = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double at = x.item(i), exact = value_of(at, false), derivative = derivative_of(at, false);
    if (std::abs(exact) > 0x1p-120) worst = std::max(worst, std::abs(y.item(i) / exact - 1));
    else EXPECT_LE(std::abs(y.item(i) - exact), 0x1p-120) << at;
    worst_derivative = std::max(worst_derivative, std::abs(dx.item(i) - derivative));
  }
  EXPECT_LT(worst, 6 * 0x1p-24) << "three units in the last place";
  EXPECT_LT(worst_derivative, 1.5 * 0x1p-23) << "for values of up to 1.13";
}

TEST(Gelu, TheTanhFormInFloat32) {
  const Tensor x = inputs(), y(x.shape()), dx(x.shape()), one = Tensor::full(x.shape(), 1);
  gelu_forward(Cpu{}, x, Gelu::tanh, y);
  gelu_backward(Cpu{}, x, one, Gelu::tanh, dx);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double at = x.item(i), exact = value_of(at, true);
    // four roundings of the exponent, 2u, precede its use
    const double exponent = std::abs(1.6 * at * (1 + 0.045 * at * at));
    ASSERT_NEAR(y.item(i), exact, (4 + 4 * std::min(exponent, 90.0)) * 0x1p-24 * std::abs(exact) + 0x1p-120) << at;
    ASSERT_NEAR(dx.item(i), derivative_of(at, true), 6 * 0x1p-23) << at;
  }
}

TEST(Gelu, Extremes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({kInfinity, -kInfinity, 3e38f, -3e38f, 100, -100, nan, 0, -0.0f}, {9}), y({9});
  for (const Gelu form : {Gelu::erf, Gelu::tanh}) {
    gelu_forward(Cpu{}, x, form, y);
    for (const int64_t i : {0, 2, 4}) EXPECT_EQ(y.item(i), x.item(i));
    for (const int64_t i : {1, 3, 5, 7, 8}) EXPECT_NEAR(y.item(i), 0, 0x1p-120);
    EXPECT_TRUE(std::isnan(y.item(6)));
    gelu_backward(Cpu{}, x, Tensor::full({9}, 2), form, y);
    for (const int64_t i : {0, 2, 4}) EXPECT_EQ(y.item(i), 2);
    for (const int64_t i : {1, 3, 5}) EXPECT_NEAR(y.item(i), 0, 0x1p-110);
    for (const int64_t i : {7, 8}) EXPECT_NEAR(y.item(i), 1, 3 * 0x1p-23);
    EXPECT_TRUE(std::isnan(y.item(6)));
  }
}

TEST(Gelu, Bfloat16RoundsTheFloat32ResultOnce) {
  const Tensor x = inputs().to(DType::bf16), dy = random_tensor(x.shape(), DType::f32).to(DType::bf16);
  for (const Gelu form : {Gelu::erf, Gelu::tanh}) {
    const Tensor half(x.shape(), DType::bf16), single(x.shape());
    gelu_forward(Cpu{}, x, form, half);
    gelu_forward(Cpu{}, x.to(DType::f32), form, single);
    EXPECT_EQ(values(half), values(single.to(DType::bf16)));
    gelu_backward(Cpu{}, x, dy, form, half);
    gelu_backward(Cpu{}, x.to(DType::f32), dy.to(DType::f32), form, single);
    EXPECT_EQ(values(half), values(single.to(DType::bf16)));
  }
}

TEST(Gelu, SameBitsForEveryLengthThreadCountAndVectorWidth) {
  const Tensor x = random_tensor({70001}, DType::f32, 1, 3), dy = random_tensor({70001}, DType::f32, 2);
  for (const Gelu form : {Gelu::erf, Gelu::tanh}) {
    auto run = [&](int64_t n) {
      const Tensor y({n}), dx({n});
      gelu_forward(Cpu{}, x.range(0, n), form, y);
      gelu_backward(Cpu{}, x.range(0, n), dy.range(0, n), form, dx);
      return std::pair{y.to_vector<float>(), dx.to_vector<float>()};
    };
    const auto expected = run(70001);
    for (const int64_t n : {0, 1, 7, 8, 9, 33}) {
      const auto part = run(n);
      EXPECT_TRUE(std::equal(part.first.begin(), part.first.end(), expected.first.begin())) << n;
      EXPECT_TRUE(std::equal(part.second.begin(), part.second.end(), expected.second.begin())) << n;
    }
    expect_same_bits_everywhere([&] { return run(70001); });
  }
}

TEST(Gelu, RefusesIntegers) { EXPECT_THROW(ops::gelu(Var(Tensor::zeros({2}, DType::i32))), Error); }

}  // namespace gelu_test
}  // namespace godwit
