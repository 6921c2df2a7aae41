#include "autograd/ops/softmax.h"

#include <limits>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace softmax_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

// A mask with 0 at every third element and in the whole second row.
Tensor mask_of(const Shape& shape) {
  Tensor mask(shape, DType::u8);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.data<uint8_t>()[i] = i % 3 != 2 && i / shape[1] != 1;
  return mask;
}

TEST(Softmax, Gradients) {
  for (const Shape& shape : {Shape{1, 1}, {3, 5}, {2, 33}})
    for (const Tensor& mask : {Tensor(), mask_of(shape)})
      check_gradients([&](const auto& in) { return ops::softmax(in[0], mask); },
                      {random_tensor(shape, DType::f64, 1, 2)});
}

TEST(Softmax, EqualsTheDefinition) {
  const Shape shape{7, 101};
  const Tensor x = random_tensor(shape, DType::f32, 1, 3).to(DType::bf16).to(DType::f32);
  for (const Tensor& mask : {Tensor(), mask_of(shape)})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      const auto y = values(ops::softmax(Var(x.to(dtype)), mask).value());
      for (int64_t row = 0; row < 7; ++row) {
        auto term = [&](int64_t i) { return mask.defined() && mask.item(i) == 0 ? 0 : std::exp(x.item(i)); };
        double sum = 0;
        for (int64_t i = row * 101; i < (row + 1) * 101; ++i) sum += term(i);
        // exponents of up to 20 and sums of 101 terms in float32; half a unit of bfloat16
        const double bound = dtype == DType::bf16 ? 0x1p-8 + 1e-5 : dtype == DType::f32 ? 1e-5 : 1e-14;
        for (int64_t i = row * 101; i < (row + 1) * 101; ++i) {
          const double expected = sum > 0 ? term(i) / sum : 0;
          ASSERT_NEAR(y[static_cast<size_t>(i)], expected, bound * expected) << dtype << " " << i;
        }
      }
    }
}

TEST(Softmax, HugeInfiniteAndNaNValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({3e38f, -3e38f, 7, 7, -kInfinity, 0, kNaN, 1}, {4, 2});
  const auto y = values(ops::softmax(Var(x)).value());
  EXPECT_EQ(std::vector(y.begin(), y.begin() + 6), (std::vector<double>{1, 0, 0.5, 0.5, 0, 1}));
  EXPECT_TRUE(std::isnan(y[6]) && std::isnan(y[7]));
}

TEST(Softmax, SameBitsOnAnyThreadCount) {
  const Tensor x = random_tensor({61, 1003}, DType::f32);
  auto run = [&] {
    Var in(x, true);
    const Var y = ops::softmax(in);
    test::backward_from(y, x);
    return std::pair{values(y.value()), values(in.grad())};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(Softmax, NamesInvalidArguments) {
  auto message = [](const Tensor& x, const Tensor& mask = {}) { return error_of([&] { ops::softmax(Var(x), mask); }); };
  EXPECT_EQ(message(Tensor::zeros({3})), "softmax: x must be [n, c], not empty, got [3]");
  EXPECT_EQ(message(Tensor::zeros({3, 0})), "softmax: x must be [n, c], not empty, got [3, 0]");
  EXPECT_EQ(message(Tensor::zeros({3, 2}), Tensor::zeros({2}, DType::u8)),
            "softmax: mask must be uint8 [3, 2], got uint8 [2]");
  EXPECT_EQ(message(Tensor::zeros({3, 2}), Tensor::zeros({3, 2})),
            "softmax: mask must be uint8 [3, 2], got float32 [3, 2]");
  EXPECT_EQ(message(Tensor::zeros({3, 2}, DType::f16)), "softmax: takes float32, bfloat16 or float64, not float16");
}

}  // namespace softmax_test
}  // namespace godwit
