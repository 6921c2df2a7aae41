#include "autograd/ops/transpose.h"

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace transpose_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

TEST(Transpose, Gradients) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 3, 5}, Shape{3, 1, 4}, Shape{1, 7, 2}})
    check_gradients([](const auto& in) { return ops::transpose(in[0]); }, {random_tensor(shape)});
}

TEST(Transpose, SwapsTheLastTwoExtents) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Shape& shape : {Shape{2, 3, 5}, Shape{1, 49, 512}, Shape{0, 2, 3}, Shape{4, 1, 9}}) {
      const Tensor x = random_tensor(shape).to(dtype), y = ops::transpose(Var(x)).value();
      ASSERT_EQ(y.shape(), (Shape{shape[0], shape[2], shape[1]}));
      for (int64_t n = 0, at = 0; n < shape[0]; ++n)
        for (int64_t j = 0; j < shape[2]; ++j)
          for (int64_t i = 0; i < shape[1]; ++i, ++at)
            ASSERT_EQ(y.item(at), x.item((n * shape[1] + i) * shape[2] + j));
    }
}

TEST(Transpose, SameOnAnyThreadCount) {
  const Tensor x = random_tensor({3, 200, 301}, DType::f32);
  const auto run = [&] { return values(ops::transpose(Var(x)).value()); };
  EXPECT_EQ(with_threads(1, run), with_threads(2, run));
}

TEST(Transpose, NamesInvalidArguments) {
  EXPECT_EQ(error_of([] { ops::transpose(Var(Tensor::zeros({3, 2}))); }), "transpose: x must be [n, a, b], got [3, 2]");
  EXPECT_THROW(ops::transpose(Var(Tensor::zeros({3, 2, 2}, DType::i32))), Error);
}

}  // namespace transpose_test
}  // namespace godwit
