#include "autograd/ops/global_avg_pool.h"

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace {

using testing::check_gradients, testing::random_tensor, testing::values, testing::with_threads;

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
        ASSERT_NEAR(y.item(i), mean, dtype == DType::f32 ? 2e-7 : 1e-14) << "rows of about 100 values of order 1";
      }
    }
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

TEST(GlobalAvgPool, NamesWhatIsWrong) {
  EXPECT_THROW(ops::global_avg_pool(Var(Tensor::zeros({2, 3, 4}))), Error);
  EXPECT_THROW(ops::global_avg_pool(Var(Tensor::zeros({2, 0, 4, 3}))), Error);
  EXPECT_THROW(ops::global_avg_pool(Var(Tensor::zeros({2, 2, 4, 3}, DType::i64))), Error);
}

}  // namespace
}  // namespace godwit
