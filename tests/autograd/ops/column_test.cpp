#include "autograd/ops/column.h"

#include "autograd/ops/add.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace column_test {

using test::check_gradients, test::random_tensor;

TEST(Column, Gradients) {
  for (const auto& [n, columns] : {std::pair{1, 1}, {5, 2}, {3, 4}})
    for (int64_t i = 0; i < columns; ++i)
      check_gradients([&](const auto& in) { return ops::column(in[0], i); }, {random_tensor({n, columns})});
  check_gradients([](const auto& in) { return ops::add(ops::column(in[0], 1), ops::column(in[0], 0)); },
                  {random_tensor({7, 2})});
}

TEST(Column, ReturnsTheColumn) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = random_tensor({9, 3}).to(dtype);
    const Tensor y = ops::column(Var(x), 2).value();
    ASSERT_EQ(y.shape(), Shape{9});
    for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(y.item(i), x.item(3 * i + 2));
  }
  EXPECT_EQ(ops::column(Var(Tensor::zeros({0, 2})), 1).shape(), Shape{0});
}

TEST(Column, NamesInvalidArguments) {
  EXPECT_EQ(error_of([] { ops::column(Var(Tensor::zeros({3, 2})), 2); }), "column: there is no column 2, x is [3, 2]");
  EXPECT_EQ(error_of([] {
              ops::column(Var(Tensor::zeros({3, 2})), -1);
            }),
            "column: there is no column -1, x is [3, 2]");
  EXPECT_EQ(error_of([] { ops::column(Var(Tensor::zeros({3})), 0); }), "column: x must be [n, columns], got [3]");
  EXPECT_THROW(ops::column(Var(Tensor::zeros({3, 2}, DType::i32)), 0), Error);
}

}  // namespace column_test
}  // namespace godwit
