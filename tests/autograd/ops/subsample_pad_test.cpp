#include "autograd/ops/subsample_pad.h"


#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace subsample_pad_test {

Tensor counting(Shape shape, DType dtype) {
  Tensor x(shape, DType::i32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int32_t>()[i] = static_cast<int32_t>(i + 1);
  return x.to(dtype);
}

struct Case {
  Shape x;
  int stride;
  int64_t channels;
};

// Compares forward with the definition. Backward is the transpose: dx is dy of the pixel's output, or 0.
TEST(SubsamplePad, MatchesTheDefinition) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Case& c :
         {Case{{2, 4, 4, 3}, 2, 6}, Case{{1, 5, 3, 1}, 2, 1}, Case{{3, 1, 1, 2}, 2, 5}, Case{{1, 7, 8, 4}, 3, 7},
          Case{{2, 3, 3, 2}, 1, 2}, Case{{0, 4, 4, 2}, 2, 4}, Case{{4, 64, 64, 16}, 2, 32}}) {
      SCOPED_TRACE(c.x.str());
      Var x(counting(c.x, dtype), true);
      const Var y = ops::subsample_pad(x, c.stride, c.channels);
      const int64_t h = (c.x[1] + c.stride - 1) / c.stride, w = (c.x[2] + c.stride - 1) / c.stride;
      ASSERT_EQ(y.shape(), (Shape{c.x[0], h, w, c.channels}));
      const Tensor dy = counting(y.shape(), dtype), expected = Tensor::zeros(c.x, dtype), dx(c.x, dtype);
      subsample_pad_backward(Cpu{}, dy, c.stride, dx);
      int64_t at = 0, wrong = 0;
      for (int64_t n = 0; n < c.x[0]; ++n)
        for (int64_t i = 0; i < h; ++i)
          for (int64_t j = 0; j < w; ++j)
            for (int64_t k = 0; k < c.channels; ++k, ++at) {
              const int64_t from = ((n * c.x[1] + i * c.stride) * c.x[2] + j * c.stride) * c.x[3] + k;
              wrong += y.value().item(at) != (k < c.x[3] ? x.value().item(from) : 0);
              if (k < c.x[3]) expected.range(from, 1).fill(dy.item(at));
            }
      EXPECT_EQ(wrong, 0);
      for (int64_t i = 0; i < dx.numel(); ++i) wrong += dx.item(i) != expected.item(i);
      EXPECT_EQ(wrong, 0) << "backward";
    }
}

TEST(SubsamplePad, GradientMatchesDifferences) {
  for (const Shape& shape : {Shape{2, 5, 4, 3}, Shape{1, 1, 1, 1}})
    test::check_gradients([](const std::vector<Var>& x) { return ops::subsample_pad(x[0], 2, 4); },
                             {test::random_tensor(shape)});
}

TEST(SubsamplePad, RefusesInvalidArguments) {
  const Var x(Tensor::zeros({1, 4, 4, 3}));
  EXPECT_THROW(ops::subsample_pad(x, 2, 2), Error);
  EXPECT_THROW(ops::subsample_pad(x, 0, 3), Error);
  EXPECT_THROW(ops::subsample_pad(Var(Tensor::zeros({4, 4})), 2, 4), Error);
}

}  // namespace subsample_pad_test
}  // namespace godwit
