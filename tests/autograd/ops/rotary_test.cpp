#include "autograd/ops/rotary.h"

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace rotary_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

// Arbitrary factors, so that every position and column matters.
RotaryTable table_of(int64_t positions, int64_t half, DType dtype) {
  return {random_tensor({positions, half}, DType::f64, 5).to(dtype),
          random_tensor({positions, half}, DType::f64, 6).to(dtype)};
}

TEST(Rotary, Gradients) {
  for (const auto& [batch, length, heads, half] : {std::array<int64_t, 4>{1, 1, 1, 1}, {2, 3, 2, 2}, {1, 5, 3, 9}}) {
    const RotaryTable table = table_of(length + 2, half, DType::f64);
    for (const int64_t first : {0, 2})
      check_gradients([&, length = length](const auto& in) { return ops::rotary(in[0], table, length, first); },
                      {random_tensor({batch * length, heads * 2 * half})});
  }
}

// y = x · cos + (-x₂, x₁) · sin, where x₁ and x₂ are the halves of a head.
TEST(Rotary, EqualsTheDefinition) {
  const int64_t batch = 2, length = 7, heads = 3, half = 5, first = 4, width = heads * 2 * half;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const RotaryTable table = table_of(first + length, half, compute_dtype(dtype));
    const Tensor x = random_tensor({batch * length, width}).to(dtype);
    const std::vector<double> y = values(ops::rotary(Var(x), table, length, first).value());
    const double unit = dtype == DType::f64 ? 1e-15 : dtype == DType::f32 ? 1e-6 : 0x1p-6;  // for values up to 8
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t c = i % (2 * half), at = (first + i / width % length) * half + c % half;
      const double other = c < half ? -x.item(i + half) : x.item(i - half);
      ASSERT_NEAR(y[static_cast<size_t>(i)], x.item(i) * table.cos.item(at) + other * table.sin.item(at), 2 * unit);
    }
  }
}

TEST(Rotary, SameBitsOnAnyThreadCountAndVectorWidth) {
  const RotaryTable table = table_of(300, 20, DType::f32);
  const Tensor x = random_tensor({600, 400}, DType::f32);
  const auto run = [&] { return values(ops::rotary(Var(x), table, 300).value()); };
  expect_same_bits_everywhere(run);
}

// Neither x nor the result is kept.
TEST(Rotary, KeepsNoActivations) {
  const RotaryTable table = table_of(8, 1024, DType::f32);
  const Var x(Tensor::zeros({8, 1 << 16}), true);
  Pool& pool = *context().pool;
  const int64_t before = pool.stats().bytes_in_use;
  Var sum;
  {
    const Var y = ops::rotary(x, table, 8);
    sum = Var::result(Tensor::zeros({}), {y}, [g = y.gradient()](const Tensor&) {
      g.add(Tensor::zeros({8, 1 << 16}));
    });
  }
  EXPECT_LT(pool.stats().bytes_in_use - before, 1 << 16);
  backward(sum);
}

TEST(Rotary, NamesInvalidArguments) {
  const RotaryTable table = table_of(6, 4, DType::f32);
  const auto message = [&](const Shape& shape, int64_t length, int64_t first, DType dtype = DType::f32) {
    return error_of([&] { ops::rotary(Var(Tensor::zeros(shape, dtype)), table, length, first); });
  };
  EXPECT_EQ(message({4, 12}, 2, 0), "rotary: x must be [rows, heads · 8], got [4, 12]");
  EXPECT_EQ(message({4, 16}, 3, 0), "rotary: 4 rows do not divide into texts of 3");
  EXPECT_EQ(message({4, 16}, 4, 3), "rotary: positions 3 to 6 exceed the table of 6 positions");
  EXPECT_EQ(message({4, 16}, 4, 0, DType::f64), "rotary: the table must be float64 as x is float64, got float32");
}

}  // namespace rotary_test
}  // namespace godwit
