#include "autograd/ops/tanh.h"

#include <limits>

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace tanh_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

TEST(Tanh, Gradients) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{3, 5}})
    check_gradients([](const auto& in) { return ops::tanh(in[0]); }, {random_tensor(shape)});
}

TEST(Tanh, Float32IsWithinTwoUnits) {
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 1.0007e-3f);
  for (float size = 1e-37f; size < 1e38f; size *= 1.7f) x.push_back(size), x.push_back(-size);
  const Tensor in = Tensor::of(x, {static_cast<int64_t>(x.size())}), y = ops::tanh(Var(in)).value();
  double worst = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double exact = std::tanh(in.item(i));
    if (exact == 0) EXPECT_EQ(y.item(i), 0);
    else worst = std::max(worst, std::abs(y.item(i) / exact - 1));
  }
  EXPECT_LT(worst, 4 * 0x1p-24);
}

TEST(Tanh, Extremes) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = ops::tanh(Var(Tensor::of<float>({infinity, -infinity, nan, -0.0f}, {4}))).value();
  EXPECT_EQ(y.item(0), 1);
  EXPECT_EQ(y.item(1), -1);
  EXPECT_TRUE(std::isnan(y.item(2)));
  EXPECT_TRUE(y.item(3) == 0 && std::signbit(y.item(3)));
}

TEST(Tanh, Bfloat16RoundsTheFloat32ResultOnce) {
  const Tensor x = random_tensor({1003}, DType::f32).to(DType::bf16), dy = random_tensor({1003}, DType::f32, 2);
  const Tensor half(x.shape(), DType::bf16), single(x.shape());
  tanh_forward(Cpu{}, x, half);
  tanh_forward(Cpu{}, x.to(DType::f32), single);
  EXPECT_EQ(values(half), values(single.to(DType::bf16)));
  const Tensor dx(x.shape(), DType::bf16);
  tanh_backward(Cpu{}, half, dy.to(DType::bf16), dx);
  tanh_backward(Cpu{}, half.to(DType::f32), dy.to(DType::bf16).to(DType::f32), single);
  EXPECT_EQ(values(dx), values(single.to(DType::bf16)));
}

TEST(Tanh, SameBitsOnAnyThreadCountAndVectorWidth) {
  const Tensor x = random_tensor({70001}, DType::f32, 1, 2), dy = random_tensor({70001}, DType::f32, 2);
  auto run = [&] {
    Tensor y(x.shape()), dx(x.shape());
    tanh_forward(Cpu{}, x, y);
    tanh_backward(Cpu{}, y, dy, dx);
    return std::pair{y.to_vector<float>(), dx.to_vector<float>()};
  };
  expect_same_bits_everywhere(run);
}

TEST(Tanh, RefusesIntegers) { EXPECT_THROW(ops::tanh(Var(Tensor::zeros({2}, DType::i32))), Error); }

}  // namespace tanh_test
}  // namespace godwit
