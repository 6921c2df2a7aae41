#include "autograd/ops/add.h"

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace add_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

TEST(Add, Gradients) {
  const std::vector<Tensor> inputs{random_tensor({2, 3, 5, 3}, DType::f64, 1),
                                   random_tensor({2, 3, 5, 3}, DType::f64, 2)};
  check_gradients([](const auto& in) { return ops::add(in[0], in[1]); }, inputs);
  check_gradients([](const auto& in) { return ops::add(in[0], in[0]); }, {inputs[0]});
  check_gradients([](const auto& in) { return ops::add(ops::add(in[0], in[1]), in[0]); }, inputs);
}

TEST(AddRelu, Gradients) {
  const Tensor a = random_tensor({3, 7}), b = random_tensor({3, 7}, DType::f64, 2);
  for (int64_t i = 0; i < a.numel(); ++i)  // central differences must not cross the kink
    if (std::abs(a.item(i) + b.item(i)) < 0.01) b.data<double>()[i] += 0.1;
  check_gradients([](const auto& in) { return ops::add_relu(in[0], in[1]); }, {a, b});
  check_gradients([](const auto& in) { return ops::add_relu(in[0], in[0]); }, {a});
  check_gradients([&](const auto& in) { return ops::add_relu(in[0], Var(b)); }, {a});
  check_gradients([&](const auto& in) { return ops::add(ops::add_relu(in[0], in[1]), in[1]); }, {a, b});
}

TEST(AddRelu, AddReluEqualsReluOfAddBitForBit) {
  for (int64_t n : {0, 1, 5, 16, 19, 200003}) {
    auto run = [&](bool fused) {
      Var a(random_tensor({n}, DType::f32, 1), true), b(random_tensor({n}, DType::f32, 2), true);
      const Var y = fused ? ops::add_relu(a, b) : ops::relu(ops::add(a, b));
      return values(y.value());
    };
    const auto expected = with_threads(1, [&] { return run(false); });
    EXPECT_EQ(with_threads(1, [&] { return run(true); }), expected);
    EXPECT_EQ(with_threads(2, [&] { return run(true); }), expected);
  }
}

TEST(Add, Bfloat16IsTheExactSumRoundedOnce) {
  for (int64_t n : {0, 1, 31, 33, 200003}) {
    const Tensor a = random_tensor({n}, DType::f32, 1).to(DType::bf16);
    const Tensor b = random_tensor({n}, DType::f32, 2, 100).to(DType::bf16);
    const Tensor sum = ops::add(Var(a), Var(b)).value(), rectified = ops::add_relu(Var(a), Var(b)).value();
    for (int64_t i = 0; i < n; ++i) {
      const auto expected = static_cast<float>(bf16(static_cast<float>(a.item(i) + b.item(i))));
      ASSERT_EQ(sum.item(i), expected) << n << " " << i;
      ASSERT_EQ(rectified.item(i), std::max(expected, 0.0f)) << n << " " << i;
    }
  }
}

TEST(Add, RefusesOtherShapesAndTypes) {
  const Var x(Tensor::zeros({2, 3}));
  for (const Tensor& other : {Tensor::zeros({3, 2}), Tensor::zeros({6}), Tensor::zeros({2, 3}, DType::f64)}) {
    EXPECT_THROW(ops::add(x, Var(other)), Error);
    EXPECT_THROW(ops::add_relu(x, Var(other)), Error);
  }
  try {
    ops::add(x, Var(Tensor::zeros({2, 4})));
    FAIL() << "no Error was thrown for different shapes";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "add: b is float32 [2, 4], expected float32 [2, 3]");
  }
}

}  // namespace add_test
}  // namespace godwit
