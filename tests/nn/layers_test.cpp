#include "nn/layers.h"

#include <gmock/gmock.h>

#include "autograd/ops/add.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace layers_test {

using test::random_tensor, test::values;

TEST(Module, RefusesDuplicateNames) {
  struct Twice : nn::Module {
    nn::Linear first{2, 2}, second{2, 2};
    explicit Twice(const char* name) { add("a", first), add(name, second); }
  };
  Twice("b");
  EXPECT_THAT(error_of([] { Twice("a"); }), testing::HasSubstr("the name 'a' occurs twice"));
}

TEST(Module, RefusesCycles) {
  struct Part : nn::Module {
    using nn::Module::add;
  };
  Part a, b, c, top;
  EXPECT_EQ(error_of([&] { a.add("self", a); }), "module: 'self' contains this module");
  a.add("b", b);
  b.add("c", c);
  EXPECT_EQ(error_of([&] { c.add("top", a); }), "module: 'top' contains this module");
  top.add("first", a);
  top.add("shared", c);  // a part of two modules is no cycle
}

TEST(Layers, EmbeddingPicksRowsOfItsWeight) {
  const nn::Embedding embedding(5, 3, DType::f64, /*padding=*/2);
  const auto parameters = embedding.parameters();
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0].name, "weight");
  EXPECT_TRUE(parameters[0].decay);
  EXPECT_TRUE(parameters[0].var == embedding.weight());
  embedding.weight().value().copy_from(random_tensor({5, 3}));
  const Var y = embedding(Tensor::of<int32_t>(std::vector<int32_t>{4, 2}, {2}));
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(y.value().item(i), embedding.weight().value().item(12 + i));
    EXPECT_EQ(y.value().item(3 + i), embedding.weight().value().item(6 + i));
  }
  backward(Var::result(Tensor::full({}, 0, DType::f64), {y}, [dy = y.gradient()](const Tensor&) {
    dy.add(Tensor::full({2, 3}, 1, DType::f64));
  }));
  EXPECT_EQ(values(embedding.weight().grad()),
            (std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST(Layers, LayerNormStartsWithoutScaleAndShift) {
  const nn::LayerNorm norm(4, 1e-12, DType::f64);
  for (const Parameter& p : norm.parameters()) EXPECT_FALSE(p.decay) << p.name;
  const Var x(random_tensor({3, 4}));
  const Tensor y = norm(x).value();
  for (int64_t row = 0; row < 3; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 4; ++i) sum += y.item(row * 4 + i), squares += std::pow(y.item(row * 4 + i), 2);
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares, 4, 1e-10);
  }
  const Var residual(random_tensor({3, 4}, DType::f64, 2));
  const auto added = values(norm.add(x, residual).value()), apart = values(norm(ops::add(x, residual)).value());
  for (size_t i = 0; i < added.size(); ++i) EXPECT_NEAR(added[i], apart[i], 1e-12);
}

TEST(Layers, RmsNormStartsWithoutScale) {
  const nn::RmsNorm norm(4, 0, DType::f64);
  const auto parameters = norm.parameters();
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0].name, "weight");
  EXPECT_FALSE(parameters[0].decay);
  const Tensor x = Tensor::of<double>({2, -2, 2, -2}, {1, 4});
  EXPECT_EQ(values(norm(Var(x)).value()), (std::vector<double>{1, -1, 1, -1}));
}

TEST(Layers, LinearWithoutBias) {
  EXPECT_EQ(nn::Linear(2, 3).parameters().size(), 2u);
  const nn::Linear linear(2, 3, DType::f32, /*bias=*/false);
  ASSERT_EQ(linear.parameters().size(), 1u);
  EXPECT_EQ(linear.parameters()[0].name, "weight");
  EXPECT_EQ(linear(Var(Tensor::zeros({4, 2}))).shape(), (Shape{4, 3}));
}

TEST(Layers, ParametersOfBfloat16LayersAreFloat32) {
  EXPECT_EQ(nn::Embedding(2, 2, DType::bf16).weight().dtype(), DType::f32);
  for (const Parameter& p : nn::LayerNorm(2, 1e-5, DType::bf16).parameters()) EXPECT_EQ(p.var.dtype(), DType::f32);
}

TEST(Layers, SizesMustBePositive) {
  EXPECT_NE(error_of([] { nn::Embedding(0, 3); }).find("Embedding: rows and width must be positive, got 0, 3"),
            std::string::npos);
  EXPECT_EQ(error_of([] { nn::RmsNorm(0, 1e-5); }), "RmsNorm: width must be positive, got 0");
  EXPECT_NE(error_of([] { nn::LayerNorm(0, 1e-5); }).find("LayerNorm: width must be positive"), std::string::npos);
}

}  // namespace layers_test
}  // namespace godwit
