#include "tests/autograd/gradient_check.h"

#include <gtest/gtest-spi.h>

namespace godwit {
namespace gradient_check_test {

using test::check_gradients, test::random_tensor;

// y = x² with the gradient `factor` · x · dy, which optionally adds to memory that it should overwrite.
Var square(const Var& x, double factor, bool adds = false) {
  Tensor y(x.shape(), x.dtype());
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = x.value().item(i) * x.value().item(i);
  return Var::result(y, {x}, [dx = x.gradient(), x = x.value(), factor, adds](const Tensor& dy) {
    Tensor g = dx.target();
    for (int64_t i = 0; i < g.numel(); ++i)
      g.data<double>()[i] = factor * x.item(i) * dy.item(i) + (adds ? g.item(i) : 0);
    dx.add(g);
  });
}

const std::vector<Tensor>& inputs() {
  static const std::vector<Tensor> x{random_tensor({5})};
  return x;
}

TEST(GradientCheck, AcceptsTheRightGradient) {
  check_gradients([](const auto& in) { return square(in[0], 2); }, inputs());
}

TEST(GradientCheck, FindsASlightlyWrongGradient) {
  EXPECT_FATAL_FAILURE(check_gradients([](const auto& in) { return square(in[0], 2.00001); }, inputs()),
                       "input 0 [5], element 0: backward gives");
}

TEST(GradientCheck, FindsAccumulationWhereItShouldOverwrite) {
  ::testing::TestPartResultArray failures;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    check_gradients([](const auto& in) { return square(in[0], 2, true); }, inputs());
  }
  std::string all;
  for (int i = 0; i < failures.size(); ++i) all += failures.GetTestPartResult(i).message();
  EXPECT_NE(all.find("a backward after clear_grad must overwrite"), std::string::npos) << all;
}

}  // namespace gradient_check_test
}  // namespace godwit
