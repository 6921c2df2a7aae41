#include "autograd/ops/relu.h"

#include <limits>

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace relu_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

// Central differences must not cross the kink.
Tensor away_from_zero(Shape shape) {
  Tensor x = random_tensor(shape);
  for (double& value : x.span<double>()) value += value < 0 ? -0.01 : 0.01;
  return x;
}

TEST(Relu, Gradients) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{2, 3, 5, 3}})
    check_gradients([](const auto& in) { return ops::relu(in[0]); }, {away_from_zero(shape)});
}

TEST(Relu, ValuesOfEveryLength) {
  for (int64_t n : {0, 1, 3, 4, 15, 16, 17, 1000, 200003}) {
    const Tensor x = random_tensor({n}, DType::f32);
    const Var y = ops::relu(Var(x));
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y.value().item(i), std::max(0.0, x.item(i))) << n << " " << i;
  }
}

TEST(Relu, NaNIsPropagated) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Var x(Tensor::of<float>({nan, -1, 2, nan, 0, -0.0f, 7}, {7}), true);
  const Var y = ops::relu(x);
  EXPECT_TRUE(std::isnan(y.value().item(0)) && std::isnan(y.value().item(3)));
  Tensor dx({7});
  relu_backward(Cpu{}, y.value(), Tensor::full({7}, 5), dx);
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{5, 0, 5, 5, 0, 0, 5}));
}

TEST(Relu, SameBitsOnAnyThreadCount) {
  const Tensor x = random_tensor({300007}, DType::f32), dy = random_tensor({300007}, DType::f32, 2);
  auto run = [&] {
    Tensor y(x.shape()), dx(x.shape());
    relu_forward(Cpu{}, x, y);
    relu_backward(Cpu{}, y, dy, dx);
    return std::pair{y.to_vector<float>(), dx.to_vector<float>()};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(2, run));
}

TEST(Relu, Bfloat16IsExact) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t n : {0, 1, 31, 33, 200003}) {
    const Tensor x = random_tensor({n}, DType::f32).to(DType::bf16),
                 dy = random_tensor({n}, DType::f32, 2).to(DType::bf16);
    if (n > 4) x.data<bf16>()[3] = bf16(nan);
    const Tensor y(x.shape(), DType::bf16), dx(x.shape(), DType::bf16);
    relu_forward(Cpu{}, x, y);
    relu_backward(Cpu{}, y, dy, dx);
    for (int64_t i = 0; i < n; ++i) {
      if (std::isnan(x.item(i))) ASSERT_TRUE(std::isnan(y.item(i))) << n << " " << i;
      else ASSERT_EQ(y.item(i), std::max(0.0, x.item(i))) << n << " " << i;
      ASSERT_EQ(dx.item(i), y.item(i) <= 0 ? 0 : dy.item(i)) << n << " " << i;
    }
  }
}

TEST(Relu, RefusesIntegers) { EXPECT_THROW(ops::relu(Var(Tensor::zeros({2}, DType::i32))), Error); }

}  // namespace relu_test
}  // namespace godwit
