#include "autograd/ops/swiglu.h"

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace swiglu_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

TEST(Swiglu, Gradients) {
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{2, 67}})
    check_gradients([](const auto& in) { return ops::swiglu(in[0], in[1]); },
                    {random_tensor(shape, DType::f64, 1, 3), random_tensor(shape, DType::f64, 2)});
}

// y, d_gate and d_up
std::vector<Tensor> run(const Tensor& gate, const Tensor& up, const Tensor& dy) {
  const Var a(gate, true), b(up, true), y = ops::swiglu(a, b);
  test::backward_from(y, dy);
  return {y.value(), a.grad(), b.grad()};
}

TEST(Swiglu, EqualsTheDefinition) {
  const int64_t n = 2001;
  const Tensor gate({n}), up = random_tensor({n}, DType::f32, 2), one = Tensor::full({n}, 1);
  for (int64_t i = 0; i < n; ++i) gate.data<float>()[i] = static_cast<float>(i - 1000) / 10;  // ±100
  const auto found = run(gate, up, one);
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate.item(i), u = up.item(i), sigmoid = 1 / (1 + std::exp(-g));
    const double expected[] = {g * sigmoid * u, u * sigmoid * (1 + g * (1 - sigmoid)), g * sigmoid};
    for (size_t r = 0; r < 3; ++r)  // some units in the last place
      ASSERT_NEAR(found[r].item(i), expected[r], 1e-6 * std::abs(expected[r]) + 1e-7) << r << " at " << g;
  }
}

TEST(Swiglu, Bfloat16RoundsTheFloat32ResultOnce) {
  std::vector<Tensor> in;
  for (const uint64_t seed : {1, 2, 3}) in.push_back(random_tensor({3, 77}, DType::f64, seed).to(DType::bf16));
  const auto half = run(in[0], in[1], in[2]);
  const auto single = run(in[0].to(DType::f32), in[1].to(DType::f32), in[2].to(DType::f32));
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(values(half[r]), values(single[r].to(DType::bf16))) << r;
}

TEST(Swiglu, SameBitsOnAnyThreadCountAndVectorWidth) {
  std::vector<Tensor> in;
  for (const uint64_t seed : {1, 2, 3}) in.push_back(random_tensor({70'001}, DType::f32, seed));
  const auto all = [&] {
    std::vector<std::vector<double>> result;
    for (const Tensor& t : run(in[0], in[1], in[2])) result.push_back(values(t));
    return result;
  };
  expect_same_bits_everywhere(all);
}

TEST(Swiglu, NamesInvalidArguments) {
  EXPECT_EQ(error_of([] {
              ops::swiglu(Var(Tensor::zeros({2, 3})), Var(Tensor::zeros({2, 4})));
            }),
            "swiglu: up is float32 [2, 4], expected float32 [2, 3]");
  const Var half(Tensor::zeros({2}, DType::f16));
  EXPECT_THROW(ops::swiglu(half, half), Error);
}

}  // namespace swiglu_test
}  // namespace godwit
