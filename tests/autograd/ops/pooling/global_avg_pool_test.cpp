#include "autograd/ops/pooling/global_avg_pool.h"

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace global_avg_pool_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

TEST(GlobalAvgPool, Gradients) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 3, 5, 3}, Shape{3, 2, 2, 17}, Shape{1, 2, 1, 64}})
    check_gradients([](const auto& in) { return ops::global_avg_pool(in[0]); }, {random_tensor(shape)});
}

TEST(GlobalAvgPool, ValuesInBothTypes) {
  for (const Shape& shape : {Shape{2, 7, 7, 17}, Shape{1, 113, 97, 3}, Shape{0, 2, 2, 3}})
    for (DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = random_tensor(shape, dtype);
      const Tensor y = ops::global_avg_pool(Var(x)).value();
      ASSERT_EQ(y.shape(), (Shape{shape[0], shape[3]}));
      for (int64_t i = 0; i < y.numel(); ++i) {
        const int64_t pixels = shape[1] * shape[2], n = i / shape[3], c = i % shape[3];
        double mean = 0;
        for (int64_t p = 0; p < pixels; ++p)
          mean += x.item((n * pixels + p) * shape[3] + c) / static_cast<double>(pixels);
        ASSERT_NEAR(y.item(i), mean, dtype == DType::f32 ? 2e-7 : 1e-14) << "sums of about 100 values of order 1";
      }
    }
}

TEST(GlobalAvgPool, Bfloat16IsRoundedOnce) {
  const Tensor x = random_tensor({3, 7, 7, 65}, DType::f32).to(DType::bf16), exact = x.to(DType::f64);
  const Tensor y({3, 65}, DType::bf16), y64({3, 65}, DType::f64), dx(x.shape(), DType::bf16),
      dx64(x.shape(), DType::f64);
  global_avg_pool_forward(Cpu{}, x, y);
  global_avg_pool_forward(Cpu{}, exact, y64);
  global_avg_pool_backward(Cpu{}, y, dx);
  global_avg_pool_backward(Cpu{}, y.to(DType::f64), dx64);
  for (int64_t i = 0; i < y.numel(); ++i)  // bfloat16 rounds by up to 2⁻⁸, a float32 sum by 7 · 2⁻²⁴ · 7
    ASSERT_NEAR(y.item(i), y64.item(i), 0x1p-8 * std::abs(y64.item(i)) + 4e-6);
  for (int64_t i = 0; i < dx.numel(); ++i) ASSERT_NEAR(dx.item(i), dx64.item(i), 0x1.0001p-8 * std::abs(dx64.item(i)));
}

TEST(GlobalAvgPool, SameBitsOnAnyThreadCount) {
  const Tensor x = random_tensor({5, 7, 9, 65}, DType::f32);
  auto run = [&] {
    Tensor y({5, 65}), dx(x.shape());
    global_avg_pool_forward(Cpu{}, x, y);
    global_avg_pool_backward(Cpu{}, y, dx);
    return std::pair{values(y), values(dx)};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(2, run));
}

TEST(GlobalAvgPool, NamesInvalidArguments) {
  EXPECT_THROW(ops::global_avg_pool(Var(Tensor::zeros({2, 3, 4}))), Error);
  EXPECT_THROW(ops::global_avg_pool(Var(Tensor::zeros({2, 0, 4, 3}))), Error);
  EXPECT_THROW(ops::global_avg_pool(Var(Tensor::zeros({2, 2, 4, 3}, DType::i64))), Error);
}

}  // namespace global_avg_pool_test
}  // namespace godwit
