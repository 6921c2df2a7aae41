#include "autograd/ops/pooling/adaptive_avg_pool2d.h"

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace adaptive_avg_pool2d_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

struct Case {
  Shape x;
  int64_t height, width;
};

// Windows that divide the image, overlap, are wider apart than their size, and repeat pixels.
const Case kCases[] = {{{2, 6, 4, 3}, 3, 2}, {{1, 7, 5, 2}, 3, 4}, {{2, 1, 1, 3}, 7, 7}, {{1, 2, 9, 1}, 7, 2},
                       {{3, 5, 3, 17}, 1, 1}, {{0, 4, 4, 2}, 2, 2}, {{2, 11, 13, 5}, 7, 7}};

TEST(AdaptiveAvgPool2d, Gradients) {
  for (const Case& c : kCases)
    if (c.x[0] > 0)
      check_gradients([&](const auto& in) { return ops::adaptive_avg_pool2d(in[0], c.height, c.width); },
                      {random_tensor(c.x)});
}

// PyTorch: torch.nn.functional.adaptive_avg_pool2d(torch.arange(10.).view(1, 1, 2, 5), (3, 2)).
TEST(AdaptiveAvgPool2d, MatchesPyTorch) {
  const Tensor x = Tensor::of<double>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5, 1});
  EXPECT_EQ(values(ops::adaptive_avg_pool2d(Var(x), 3, 2).value()), (std::vector<double>{1, 3, 3.5, 5.5, 6, 8}));
}

TEST(AdaptiveAvgPool2d, IsTheMeanOfEachWindow) {
  for (const Case& c : kCases)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      const Tensor x = random_tensor(c.x).to(dtype), y = ops::adaptive_avg_pool2d(Var(x), c.height, c.width).value();
      ASSERT_EQ(y.shape(), (Shape{c.x[0], c.height, c.width, c.x[3]}));
      const int64_t h = c.x[1], w = c.x[2], channels = c.x[3];
      int64_t at = 0;
      for (int64_t n = 0; n < c.x[0]; ++n)
        for (int64_t i = 0; i < c.height; ++i)
          for (int64_t j = 0; j < c.width; ++j)
            for (int64_t k = 0; k < channels; ++k, ++at) {
              double sum = 0;
              int64_t pixels = 0;
              for (int64_t r = 0; r < h; ++r)
                for (int64_t q = 0; q < w; ++q)
                  if (r * c.height < (i + 1) * h && (r + 1) * c.height > i * h && q * c.width < (j + 1) * w &&
                      (q + 1) * c.width > j * w)
                    sum += x.item(((n * h + r) * w + q) * channels + k), ++pixels;
              const double mean = sum / static_cast<double>(pixels);
              const double unit = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f32 ? 0x1p-23 : 1e-15;
              ASSERT_NEAR(y.item(at), mean, unit * std::abs(mean) + 1e-15) << "rounded once";
            }
    }
}

TEST(AdaptiveAvgPool2d, ReturnsAnImageOfTheOutputSizeUnchanged) {
  const Var x(random_tensor({2, 7, 7, 3}));
  EXPECT_TRUE(ops::adaptive_avg_pool2d(x, 7, 7) == x);
}

TEST(AdaptiveAvgPool2d, SameBitsOnAnyThreadCount) {
  const Tensor x = random_tensor({5, 9, 8, 65}, DType::f32);
  auto run = [&] {
    const Tensor y({5, 7, 7, 65}), dx(x.shape());
    adaptive_avg_pool2d_forward(Cpu{}, x, y);
    adaptive_avg_pool2d_backward(Cpu{}, y, dx);
    return std::pair{values(y), values(dx)};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(2, run));
}

TEST(AdaptiveAvgPool2d, NamesInvalidArguments) {
  EXPECT_THROW(ops::adaptive_avg_pool2d(Var(Tensor::zeros({2, 3, 4})), 1, 1), Error);
  EXPECT_THROW(ops::adaptive_avg_pool2d(Var(Tensor::zeros({2, 0, 4, 3})), 1, 1), Error);
  EXPECT_THROW(ops::adaptive_avg_pool2d(Var(Tensor::zeros({2, 2, 4, 3})), 0, 1), Error);
  EXPECT_THROW(ops::adaptive_avg_pool2d(Var(Tensor::zeros({2, 2, 4, 3}, DType::i64)), 1, 1), Error);
}

}  // namespace adaptive_avg_pool2d_test
}  // namespace godwit
