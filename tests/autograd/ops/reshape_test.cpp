#include "autograd/ops/reshape.h"

#include "autograd/ops/add.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace reshape_test {

using test::check_gradients, test::random_tensor;

TEST(Reshape, Gradients) {
  const std::vector<Tensor> x{random_tensor({2, 6})};
  check_gradients([](const auto& in) { return ops::reshape(in[0], {3, 4}); }, x);
  check_gradients([](const auto& in) { return ops::reshape(ops::add(in[0], in[0]), {12}); }, x);
  check_gradients(
      [](const auto& in) {
        return ops::add(ops::reshape(in[0], {1, 12}), ops::reshape(in[0], {1, 12}));
      },
      x);
  check_gradients([](const auto& in) { return ops::reshape(in[0], {}); }, {random_tensor({1, 1})});
}

TEST(Reshape, SharesMemory) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    const Var x(Tensor::zeros({4, 3}, dtype)), y = ops::reshape(x, {2, 2, 3});
    EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
    EXPECT_TRUE(y.value().same_memory(x.value()));
  }
  EXPECT_EQ(ops::reshape(Var(Tensor::zeros({0, 3})), {7, 0}).shape(), (Shape{7, 0}));
}

TEST(Reshape, NamesBothShapes) {
  EXPECT_EQ(error_of([] {
              ops::reshape(Var(Tensor::zeros({2, 3})), {2, 4});
            }),
            "reshape: [2, 3] has 6 elements, [2, 4] has 8");
}

}  // namespace reshape_test
}  // namespace godwit
