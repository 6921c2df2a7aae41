#include "autograd/ops/scale.h"

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace scale_test {

using test::check_gradients, test::random_tensor, test::with_threads;

TEST(Scale, Gradients) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{2, 3, 5}})
    for (const double factor : {0.5, -3.0, 0.0})
      check_gradients([=](const auto& in) { return ops::scale(in[0], factor); }, {random_tensor(shape)});
}

TEST(Scale, ValuesOfEveryLengthAndType) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    for (const int64_t n : {0, 1, 15, 17, 200003}) {
      const Tensor x = random_tensor({n}).to(type), y = ops::scale(Var(x), -0.25).value();
      ASSERT_EQ(y.dtype(), type);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y.item(i), -0.25 * x.item(i)) << type << " " << i;
    }
  EXPECT_THROW(ops::scale(Var(Tensor::zeros({2}, DType::i32)), 2), Error);
}

TEST(Scale, SameBitsOnAnyThreadCount) {
  const Tensor x = random_tensor({300007}, DType::f32);
  const auto run = [&] { return ops::scale(Var(x), 1.0 / 3).value().to_vector<float>(); };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

// A shared gradient must not be overwritten.
TEST(Scale, DoesNotOverwriteASharedGradient) {
  const Var x(random_tensor({5}), true);
  Tensor seen;
  const Var z = ops::scale(x, 2);
  const Var sum = Var::result(Tensor::full({}, 0, DType::f64), {z}, [&, dz = z.gradient()](const Tensor&) {
    seen = Tensor::full({5}, 1, DType::f64);
    dz.add(seen);
  });
  backward(sum);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(x.grad().item(i), 2) << i;
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(seen.item(i), 1) << i;
}

}  // namespace scale_test
}  // namespace godwit
