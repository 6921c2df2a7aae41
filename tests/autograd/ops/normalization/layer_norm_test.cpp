#include "autograd/ops/normalization/layer_norm.h"

#include <limits>

#include "autograd/ops/add.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace layer_norm_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

constexpr double kEps = 1e-12;  // as in BERT

// y, dx, d_gamma and d_beta
using Results = std::vector<Tensor>;

struct Case {
  Tensor x, gamma, beta, dy;
};

Case random_case(int64_t n, int64_t width, double mean = 0) {
  Case c{random_tensor({n, width}, DType::f32, 1), random_tensor({width}, DType::f32, 2),
         random_tensor({width}, DType::f32, 3), random_tensor({n, width}, DType::f32, 4)};
  for (float& value : c.x.span<float>()) value += static_cast<float>(mean);
  return c;
}

Results run(const Case& c, DType dtype, double eps) {
  const DType type = compute_dtype(dtype);
  const std::vector<Var> in{Var(c.x.to(dtype), true), Var(c.gamma.to(type), true), Var(c.beta.to(type), true)};
  const Var y = ops::layer_norm(in[0], in[1], in[2], eps);
  test::backward_from(y, c.dy.to(dtype));
  return {y.value(), in[0].grad(), in[1].grad(), in[2].grad()};
}

// The definition in float64.
Results oracle(const Case& c, double eps) {
  const int64_t n = c.x.dim(0), width = c.x.dim(1);
  const auto w = static_cast<double>(width);
  const Tensor y({n, width}, DType::f64), dx = y.clone(), d_gamma = Tensor::zeros({width}, DType::f64);
  const Tensor d_beta = d_gamma.clone();
  for (int64_t i = 0; i < n; ++i) {
    double mean = 0, variance = 0, of_g = 0, of_gx = 0;
    auto x = [&](int64_t col) { return c.x.item(i * width + col) - mean; };
    auto g = [&](int64_t col) { return c.dy.item(i * width + col) * c.gamma.item(col); };
    for (int64_t col = 0; col < width; ++col) mean += c.x.item(i * width + col) / w;
    for (int64_t col = 0; col < width; ++col) variance += x(col) * x(col) / w;
    const double inv = 1 / std::sqrt(variance + eps);
    for (int64_t col = 0; col < width; ++col) of_g += g(col) / w, of_gx += g(col) * x(col) * inv / w;
    for (int64_t col = 0; col < width; ++col) {
      const double dy = c.dy.item(i * width + col);
      y.data<double>()[i * width + col] = x(col) * inv * c.gamma.item(col) + c.beta.item(col);
      dx.data<double>()[i * width + col] = inv * (g(col) - of_g - x(col) * inv * of_gx);
      d_gamma.data<double>()[col] += dy * x(col) * inv;
      d_beta.data<double>()[col] += dy;
    }
  }
  return {y, dx, d_gamma, d_beta};
}

TEST(LayerNorm, Gradients) {
  for (const auto& [n, width] : {std::pair{1, 2}, {3, 5}, {35, 3}, {2, 35}}) {
    const Tensor gamma = random_tensor({width}, DType::f64, 2), beta = random_tensor({width}, DType::f64, 3);
    // With two values, the normalized ones are ±1 unless their difference is comparable to eps; a larger eps is used
    // here.
    check_gradients([](const auto& in) { return ops::layer_norm(in[0], in[1], in[2], 0.1); },
                    {random_tensor({n, width}), gamma, beta});
  }
  const Var gamma(random_tensor({5}, DType::f64, 2)), beta(random_tensor({5}, DType::f64, 3));
  check_gradients([&](const auto& in) { return ops::layer_norm(in[0], gamma, beta, kEps); }, {random_tensor({3, 5})});
}

TEST(AddLayerNorm, Gradients) {
  const std::vector<Tensor> in{random_tensor({4, 5}, DType::f64, 1), random_tensor({4, 5}, DType::f64, 2),
                               random_tensor({5}, DType::f64, 3), random_tensor({5}, DType::f64, 4)};
  check_gradients([](const auto& v) { return ops::add_layer_norm(v[0], v[1], v[2], v[3], kEps); }, in);
  check_gradients([](const auto& v) { return ops::add_layer_norm(v[0], v[0], v[1], v[2], kEps); },
                  {in[0], in[2], in[3]});
  check_gradients([&](const auto& v) { return ops::add_layer_norm(Var(in[0]), v[0], v[1], v[2], kEps); },
                  {in[1], in[2], in[3]});
}

TEST(LayerNorm, AgreesWithTheDefinition) {
  for (const auto& [n, width] :
       {std::array<int64_t, 2>{1, 1}, {1, 7}, {3, 16}, {5, 31}, {33, 64}, {67, 257}, {4, 3000}})
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Case c = random_case(n, width, 3);
      const double eps = width < 8 ? 0.1 : kEps;  // the variance of few values may be tiny, which makes 1 / std huge
      const Results ours = run(c, dtype, eps), exact = oracle(c, eps);
      // y and dx: rounding of x̂ and of row sums; in float32 some tens of units, for values of up to 20 and inverse
      // deviations of up to 3. Parameter gradients sum over up to 67 such rows.
      for (size_t r = 0; r < ours.size(); ++r)
        for (int64_t i = 0; i < ours[r].numel(); ++i)
          ASSERT_NEAR(ours[r].item(i), exact[r].item(i), (dtype == DType::f32 ? 1e-5 : 1e-13) * (r < 2 ? 1 : 4))
              << n << " " << width << " " << dtype << " result " << r << " element " << i;
    }
}

TEST(LayerNorm, RowsFarFromZeroHaveAnAccurateVariance) {
  const Case c = random_case(5, 768, 1000);  // with x² in float32, rounding would be 6 % of the variance
  const Results ours = run(c, DType::f32, kEps), exact = oracle(c, kEps);
  for (int64_t i = 0; i < c.x.numel(); ++i)  // the mean of 1000 has an error of 6e-5
    ASSERT_NEAR(ours[0].item(i), exact[0].item(i), 6e-4) << i;
}

TEST(LayerNorm, Bfloat16RoundsTheFloat32ResultOnce) {
  Case c = random_case(9, 100);
  c.x = c.x.to(DType::bf16).to(DType::f32), c.dy = c.dy.to(DType::bf16).to(DType::f32);
  const Results half = run(c, DType::bf16, kEps), single = run(c, DType::f32, kEps);
  for (size_t r = 0; r < half.size(); ++r) {
    ASSERT_EQ(half[r].dtype(), r < 2 ? DType::bf16 : DType::f32);
    EXPECT_EQ(values(half[r]), values(r < 2 ? single[r].to(DType::bf16) : single[r])) << r;
  }
}

TEST(AddLayerNorm, EqualsLayerNormOfTheSumBitForBit) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const int64_t n : {0, 1, 40}) {
      auto result = [&](bool fused) {
        const DType type = compute_dtype(dtype);
        const std::vector<Var> in{Var(random_tensor({n, 70}).to(dtype), true),
                                  Var(random_tensor({n, 70}, DType::f64, 2).to(dtype), true),
                                  Var(random_tensor({70}, DType::f64, 3).to(type), true),
                                  Var(random_tensor({70}, DType::f64, 4).to(type), true)};
        const Var y = fused ? ops::add_layer_norm(in[0], in[1], in[2], in[3], kEps)
                            : ops::layer_norm(ops::add(in[0], in[1]), in[2], in[3], kEps);
        const Tensor dy = random_tensor({n, 70}, DType::f64, 5).to(dtype);
        test::backward_from(y, dy);
        std::vector<std::vector<double>> all{values(y.value())};
        for (const Var& v : in) all.push_back(values(v.grad()));
        return all;
      };
      EXPECT_EQ(result(true), result(false)) << dtype << " " << n;
    }
}

TEST(LayerNorm, SameBitsOnAnyThreadCountAndVectorWidth) {
  const Case c = random_case(200, 333);
  auto all = [&] {
    std::vector<std::vector<double>> result;
    for (const Tensor& t : run(c, DType::f32, kEps)) result.push_back(values(t));
    return result;
  };
  expect_same_bits_everywhere(all, {2, 3, 7});
}

TEST(LayerNorm, NaNAffectsOnlyItsRow) {
  const Tensor x = random_tensor({3, 20}, DType::f32), one = Tensor::full({20}, 1), zero = Tensor::zeros({20});
  x.data<float>()[25] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = ops::layer_norm(Var(x), Var(one), Var(zero), kEps).value();
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y.item(i)), i / 20 == 1) << i;
}

TEST(LayerNorm, NamesInvalidArguments) {
  auto message = [](const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = kEps) {
    return error_of([&] { ops::layer_norm(Var(x), Var(gamma), Var(beta), eps); });
  };
  const Tensor x = Tensor::zeros({2, 8}), good = Tensor::zeros({8}), bad = Tensor::zeros({9});
  EXPECT_EQ(message(Tensor::zeros({8}), good, good), "layer_norm: x must be [n, width], got [8]");
  EXPECT_EQ(message(Tensor::zeros({2, 0}), good, good), "layer_norm: x must be [n, width], got [2, 0]");
  EXPECT_EQ(message(x, bad, good), "layer_norm: gamma must be float32 [8], got float32 [9]");
  EXPECT_EQ(message(x, good, good.to(DType::f64)), "layer_norm: beta must be float32 [8], got float64 [8]");
  EXPECT_EQ(message(x, good, good, -1), "layer_norm: eps must be finite and not negative, got -1");
  EXPECT_EQ(message(x.to(DType::bf16), good.to(DType::bf16), good),
            "layer_norm: gamma must be float32 [8], got bfloat16 [8]");
  const Var both(good);
  EXPECT_THROW(ops::layer_norm(Var(x), both, both, kEps), Error);
  EXPECT_EQ(error_of([&] {
              ops::add_layer_norm(Var(x), Var(Tensor::zeros({2, 7})), Var(good), Var(good), kEps);
            }),
            "add_layer_norm: residual is float32 [2, 7], expected float32 [2, 8]");
  EXPECT_THROW(ops::layer_norm(Var(Tensor::zeros({2, 8}, DType::f16)), Var(good), Var(good), kEps), Error);
}

}  // namespace layer_norm_test
}  // namespace godwit
