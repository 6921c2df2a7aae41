#include "autograd/ops/linear.h"

#include <gmock/gmock.h>

#include "autograd/ops/add.h"
#include "autograd/ops/tanh.h"
#include "tests/autograd/gradient_check.h"
#include "tests/autograd/ops/linear_cases.h"
#include "tests/support.h"

namespace godwit {
namespace linear_test {

using test::check_gradients;
using test::random_tensor;

TEST(Linear, Gradients) {
  for (const auto& [n, in, out] : {std::array<int64_t, 3>{1, 1, 1}, {3, 5, 4}, {7, 17, 2}}) {
    const Tensor x = random_tensor({n, in}, DType::f64, 1), w = random_tensor({out, in}, DType::f64, 2);
    const Tensor b = random_tensor({out}, DType::f64, 3);
    check_gradients([](const auto& v) { return ops::linear(v[0], v[1], v[2]); }, {x, w, b});
    check_gradients([](const auto& v) { return ops::linear(v[0], v[1]); }, {x, w});
    check_gradients([&](const auto& v) { return ops::linear(Var(x), Var(w), v[0]); }, {b});
    check_gradients([&](const auto& v) { return ops::linear(Var(x), v[0], Var(b)); }, {w});
  }
}

// Layers that share their input add to one gradient.
TEST(Linear, GradientsOfASharedInput) {
  const Tensor x = random_tensor({3, 5}, DType::f64, 1);
  const Tensor a = random_tensor({5, 5}, DType::f64, 2), b = random_tensor({5, 5}, DType::f64, 3);
  check_gradients(
      [](const auto& v) {
        const Var h = ops::tanh(v[0]);
        return ops::add(ops::add(ops::linear(h, v[1]), ops::linear(h, v[2])), ops::add(h, ops::linear(h, v[1])));
      },
      {x, a, b});
}

TEST(Linear, AgreesWithTheDefinitionInBothTypes) {
  for (DType dtype : {DType::f32, DType::f64})
    for (const auto& [n, in, out] :
         {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 5}, {16, 64, 10}, {33, 129, 65}, {40, 128, 192}}) {
      const Tensor x = random_tensor({n, in}, dtype, 1), w = random_tensor({out, in}, dtype, 2);
      const Tensor b = random_tensor({out}, dtype, 3);
      const Tensor y = ops::linear(Var(x), Var(w), Var(b)).value();
      ASSERT_EQ(y.shape(), (Shape{n, out}));
      // Rounding of a sum of in + 1 terms in any order.
      const double unit = static_cast<double>(in + 2) * (dtype == DType::f32 ? 0x1p-24 : 0x1p-53);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t o = 0; o < out; ++o) {
          double sum = b.item(o), size = std::abs(sum);
          for (int64_t k = 0; k < in; ++k) {
            const double term = x.item(i * in + k) * w.item(o * in + k);
            sum += term, size += std::abs(term);
          }
          ASSERT_NEAR(y.item(i * out + o), sum, 2 * unit * size) << dtype << " " << x.shape() << w.shape();
        }
    }
}

TEST(Linear, Float32GradientsAgreeWithFloat64) {
  auto gradients = [](DType dtype, int64_t n, int64_t width, int64_t out) {
    std::vector<Var> in{Var(random_tensor({n, width}, DType::f32, 1).to(dtype), true),
                        Var(random_tensor({out, width}, DType::f32, 2).to(dtype), true),
                        Var(random_tensor({out}, DType::f32, 3).to(dtype), true)};
    const Tensor dy = random_tensor({n, out}, DType::f32, 4).to(dtype);
    Var y = ops::linear(in[0], in[1], in[2]);
    test::backward_from(y, dy);
    std::vector<std::vector<double>> all;
    for (const Var& v : in) all.push_back(test::values(v.grad()));
    return all;
  };
  for (const auto& [n, width, out] : {std::array<int64_t, 3>{33, 129, 65}, {40, 128, 192}}) {
    const auto single = gradients(DType::f32, n, width, out), exact = gradients(DType::f64, n, width, out);
    // Sums of at most `out` products of normal numbers: out · 2⁻²⁴ · Σ|a·b| < out · 6e-8 · out · 1.
    const double bound = static_cast<double>(out * out) * 0x1p-24;
    for (size_t i = 0; i < exact.size(); ++i)
      for (size_t j = 0; j < exact[i].size(); ++j) ASSERT_NEAR(single[i][j], exact[i][j], bound) << i << " " << j;
  }
}

// Rounding of k products summed in any order: k · 2⁻²⁴ · Σ|a·b|. A bfloat16 result adds the rounding of its weights and
// of itself, 2⁻⁸ each, and their product.
TEST(Linear, Bfloat16AgreesWithFloat64) {
  for (const auto& [n, in, out] :
       {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 5}, {16, 64, 10}, {33, 129, 65}, {40, 128, 192}})
    for (bool with_bias : {false, true}) {
      const Tensor x = random_tensor({n, in}, DType::f32, 1).to(DType::bf16);
      const Tensor dy = random_tensor({n, out}, DType::f32, 4).to(DType::bf16);
      const Tensor w = random_tensor({out, in}, DType::f32, 2), b = random_tensor({out}, DType::f32, 3);
      auto run = [&](bool wide, bool absolute) {
        std::vector<Var> leaves;
        auto leaf = [&](const Tensor& t) {
          Tensor value = wide ? t.to(DType::f64) : t;
          if (absolute)
            for (double& v : value.span<double>()) v = std::abs(v);
          return value;
        };
        leaves = {Var(leaf(x), true), Var(leaf(w), true)};
        if (with_bias) leaves.emplace_back(leaf(b), true);
        const Var y = ops::linear(leaves[0], leaves[1], with_bias ? leaves[2] : Var());
        test::backward_from(y, leaf(dy));
        std::vector<Tensor> results{y.value()};
        for (const Var& v : leaves) results.push_back(v.grad());
        return results;
      };
      const auto half = run(false, false), exact = run(true, false), size = run(true, true);
      const int64_t terms[] = {in + 1, out, n, n};
      for (size_t r = 0; r < half.size(); ++r) {
        ASSERT_EQ(half[r].dtype(), r < 2 ? DType::bf16 : DType::f32) << r;
        const double bound = static_cast<double>(terms[r] + 2) * 0x1p-24 + (r < 2 ? 0x1p-7 + 0x1p-16 : 0);
        for (int64_t i = 0; i < half[r].numel(); ++i)
          ASSERT_NEAR(half[r].item(i), exact[r].item(i), bound * size[r].item(i)) << n << " " << in << " " << out << " "
                                                                                  << r;
      }
      const auto again = run(false, false);
      for (size_t r = 0; r < half.size(); ++r) EXPECT_EQ(test::values(half[r]), test::values(again[r]));
    }
}

TEST(JoinedLinear, Gradients) {
  const Tensor x = random_tensor({3, 5}, DType::f64, 1);
  std::vector<Tensor> inputs{x};
  for (const int64_t out : {4, 1, 7}) {
    inputs.push_back(random_tensor({out, 5}, DType::f64, 10 + static_cast<uint64_t>(out)));
    inputs.push_back(random_tensor({out}, DType::f64, 20 + static_cast<uint64_t>(out)));
  }
  check_gradients(
      [](const auto& v) {
        const Var h = ops::tanh(v[0]);
        return ops::joined_linear(h, {{v[1], v[2]}, {v[3], v[4]}, {v[5], v[6]}});
      },
      inputs);
  check_gradients([](const auto& v) { return ops::joined_linear(v[0], {{v[2]}, {v[1]}}); }, {x, inputs[1], inputs[3]});
  check_gradients(  // of the biases only
      [&](const auto& v) {
        return ops::joined_linear(Var(x), {{Var(inputs[1]), v[0]}, {Var(inputs[3]), v[1]}});
      },
      {inputs[2], inputs[4]});
}

TEST(JoinedLinear, EqualsSeparateLayers) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64})
    for (const bool bias : {false, true})
      for (const std::vector<int64_t>& outs : {std::vector<int64_t>{64, 64, 64}, {128, 64, 10}, {5, 3, 9, 1}, {7}})
        test::expect_joined_linear_equals_layers(type, 33, 64, outs, bias);
}

TEST(JoinedLinear, NamesInvalidArguments) {
  const Var x(Tensor::zeros({2, 3})), w(Tensor::zeros({4, 3}), true), v(Tensor::zeros({4, 3}), true);
  const Var bias(Tensor::zeros({4}), true), fixed(Tensor::zeros({4, 3}));
  EXPECT_THAT(error_of([&] { ops::joined_linear(x, {}); }), ::testing::HasSubstr("at least one layer"));
  EXPECT_THAT(error_of([&] { ops::joined_linear(x, {{w}, {v}, {w}}); }), ::testing::HasSubstr("occurs twice"));
  EXPECT_THAT(error_of([&] { ops::joined_linear(x, {{w, bias}, {v, bias}}); }),
              ::testing::HasSubstr("a bias [4] occurs twice"));
  EXPECT_THAT(error_of([&] { ops::joined_linear(x, {{w, bias}, {v}}); }), ::testing::HasSubstr("a bias, or none"));
  EXPECT_THAT(error_of([&] { ops::joined_linear(x, {{w}, {fixed}}); }), ::testing::HasSubstr("require a gradient"));
}

TEST(Linear, NamesInvalidArguments) {
  auto message = [](const Shape& x, const Shape& w, const Shape& b) {
    return error_of([&] { ops::linear(Var(Tensor::zeros(x)), Var(Tensor::zeros(w)), Var(Tensor::zeros(b))); });
  };
  EXPECT_EQ(message({8, 32}, {10, 64}, {10}), "linear: weight expects 64 features, x is [8, 32]");
  EXPECT_NE(message({8, 4, 32}, {10, 32}, {10}).find("x must be [n, in]"), std::string::npos);
  EXPECT_NE(message({8, 32}, {10, 32, 1}, {10}).find("[out, in]"), std::string::npos);
  EXPECT_NE(message({8, 32}, {10, 32}, {11}).find("bias must be"), std::string::npos);
  EXPECT_NE(message({0, 32}, {10, 32}, {10}).find("nothing to compute"), std::string::npos);
  EXPECT_THROW(ops::linear(Var(Tensor::zeros({2, 3}, DType::bf16)), Var(Tensor::zeros({4, 3}, DType::bf16))), Error);
  EXPECT_THROW(ops::linear(Var(Tensor::zeros({2, 3}, DType::f16)), Var(Tensor::zeros({4, 3}))), Error);
  EXPECT_THROW(ops::linear(Var(Tensor::zeros({2, 3}, DType::f64)), Var(Tensor::zeros({4, 3}))), Error);
}

}  // namespace linear_test
}  // namespace godwit
