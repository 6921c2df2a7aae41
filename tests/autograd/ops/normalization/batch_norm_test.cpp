#include "autograd/ops/normalization/batch_norm.h"

#include <limits>

#include "autograd/ops/add.h"
#include "autograd/ops/relu.h"
#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace batch_norm_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

struct Case {
  Tensor x, gamma, beta, running_mean, running_var;

  explicit Case(Shape shape, DType dtype = DType::f64, uint64_t seed = 1, double mean = 0.5) {
    const Shape channels{shape[shape.rank() - 1]};
    x = random_tensor(shape, DType::f64, seed, 2);
    for (double& value : x.span<double>()) value += mean;
    gamma = random_tensor(channels, DType::f64, seed + 100);
    beta = random_tensor(channels, DType::f64, seed + 200);
    running_mean = random_tensor(channels, DType::f64, seed + 300);
    running_var = Tensor::full(channels, 1.7, DType::f64);
    for (Tensor* t : {&x, &gamma, &beta, &running_mean, &running_var}) *t = t->to(dtype);
  }
  Case to(DType dtype) const {
    Case other = *this;
    for (Tensor* t : {&other.x, &other.gamma, &other.beta, &other.running_mean, &other.running_var}) *t = t->to(dtype);
    return other;
  }
  // Works on copies of the running statistics, so that the function is pure.
  Var run(const std::vector<Var>& in, BatchNormOptions options) const {
    return ops::batch_norm(in[0], in[1], in[2], running_mean.clone(), running_var.clone(), options);
  }
};

// The smallest distance of the output from the relu's kink. Central differences must not cross the kink.
double distance_to_kink(const Case& c, BatchNormOptions options) {
  options.relu = false;
  double smallest = 1e300;
  for (double y : values(c.run({Var(c.x), Var(c.gamma), Var(c.beta)}, options).value()))
    smallest = std::min(smallest, std::abs(y));
  return smallest;
}

TEST(BatchNorm, Gradients) {
  for (const Shape& shape : {Shape{5, 1}, Shape{2, 2, 3, 3}, Shape{7, 17}, Shape{1, 2, 2, 64}})
    for (bool training : {true, false})
      for (bool relu : {true, false}) {
        const BatchNormOptions options{.training = training, .relu = relu};
        uint64_t seed = 1;
        while (relu && distance_to_kink(Case(shape, DType::f64, seed), options) < 5e-4) ++seed;
        const Case c(shape, DType::f64, seed);
        SCOPED_TRACE(::testing::Message() << shape << " training " << training << " relu " << relu);
        check_gradients([&](const auto& in) { return c.run(in, options); }, {c.x, c.gamma, c.beta});
        check_gradients([&](const auto& in) { return c.run({in[0], Var(c.gamma), Var(c.beta)}, options); }, {c.x});
        check_gradients([&](const auto& in) { return c.run({Var(c.x), in[0], in[1]}, options); }, {c.gamma, c.beta});
      }
}

TEST(BatchNorm, GradientsWithResidual) {
  for (const Shape& shape : {Shape{5, 1}, Shape{2, 2, 3, 3}, Shape{1, 2, 2, 64}})
    for (bool training : {true, false})
      for (bool relu : {true, false}) {
        const Case c(shape);
        const Tensor residual = random_tensor(shape, DType::f64, 5);
        auto normed = [&](const Var& x, const Var& gamma, const Var& beta, const Var& plus, bool rectified) {
          return ops::batch_norm(x, gamma, beta, c.running_mean.clone(), c.running_var.clone(),
                                 {.training = training, .relu = rectified}, plus);
        };
        const Tensor y = normed(Var(c.x), Var(c.gamma), Var(c.beta), Var(residual), false).value();
        for (int64_t i = 0; i < y.numel(); ++i)  // central differences must not cross the kink
          if (std::abs(y.item(i)) < 0.01) residual.data<double>()[i] += 0.1;
        SCOPED_TRACE(::testing::Message() << shape << " training " << training << " relu " << relu);
        check_gradients([&](const auto& in) { return normed(in[0], in[1], in[2], in[3], relu); },
                        {c.x, c.gamma, c.beta, residual});
        check_gradients([&](const auto& in) { return normed(Var(c.x), Var(c.gamma), Var(c.beta), in[0], relu); },
                        {residual});
        check_gradients([&](const auto& in) { return normed(in[0], Var(c.gamma), Var(c.beta), Var(residual), relu); },
                        {c.x});
      }
}

TEST(BatchNorm, ValuesAndRunningStatistics) {
  const Var x(Tensor::of<double>({1, 2, 3, 6}, {4, 1})), gamma(Tensor::full({1}, 2, DType::f64));
  const Var beta(Tensor::full({1}, -1, DType::f64));
  const Tensor mean = Tensor::zeros({1}, DType::f64), var = Tensor::full({1}, 1, DType::f64);
  Var y = ops::batch_norm(x, gamma, beta, mean, var, {.eps = 0.5});
  EXPECT_EQ(values(y.value()), (std::vector<double>{-3, -2, -1, 2})) << "mean 3, biased variance 3.5";
  EXPECT_NEAR(mean.item(), 0.3, 1e-15);
  EXPECT_NEAR(var.item(), 0.9 + 0.1 * 14 / 3, 1e-15) << "the unbiased variance, 14/3";
  y = ops::batch_norm(x, gamma, beta, Tensor::full({1}, 2, DType::f64), Tensor::full({1}, 3.5, DType::f64),
                      {.training = false, .eps = 0.5, .relu = true});
  EXPECT_EQ(values(y.value()), (std::vector<double>{0, 0, 0, 3}));
}

TEST(BatchNorm, EqualsTheDefinitionForAllSizes) {
  for (const Shape& shape : {Shape{2, 1}, Shape{3, 3}, Shape{16385, 1}, Shape{5, 37, 41, 3}, Shape{3, 11, 13, 17},
                             Shape{2, 15, 17, 64}, Shape{4, 7, 7, 2048}, Shape{9, 300}}) {
    const Case c(shape);
    const BatchNormOptions options;
    const int64_t channels = c.gamma.numel(), rows = c.x.numel() / channels;
    const auto exact = values(c.run({Var(c.x), Var(c.gamma), Var(c.beta)}, options).value());
    const Case single = c.to(DType::f32);
    const auto rounded = values(single.run({Var(single.x), Var(single.gamma), Var(single.beta)}, options).value());
    for (int64_t ch = 0; ch < channels; ++ch) {
      double mean = 0, var = 0;
      for (int64_t r = 0; r < rows; ++r) mean += c.x.item(r * channels + ch) / static_cast<double>(rows);
      for (int64_t r = 0; r < rows; ++r)
        var += std::pow(c.x.item(r * channels + ch) - mean, 2) / static_cast<double>(rows);
      const double scale = c.gamma.item(ch) / std::sqrt(var + options.eps);
      for (int64_t i = ch; i < c.x.numel(); i += channels) {
        const double expected = (c.x.item(i) - mean) * scale + c.beta.item(ch);
        ASSERT_NEAR(exact[static_cast<size_t>(i)], expected, 1e-11) << shape << " " << i;
        // Rounding of x and mean (of magnitude 8) to float32, times the scale, plus rounding of y.
        const double tolerance = 1.2e-7 * (8 * std::abs(scale) + 4 * std::abs(expected) + 1);
        ASSERT_NEAR(rounded[static_cast<size_t>(i)], expected, tolerance) << shape << " " << i;
      }
    }
  }
}

TEST(BatchNorm, MeanFarFromZero) {
  const Case single = Case({8, 9, 9, 5}, DType::f32, 1, 1e4), exact = single.to(DType::f64);
  const Var x(single.x, true), x64(exact.x, true);
  const Var y = single.run({x, Var(single.gamma), Var(single.beta)}, {});
  const Var y64 = exact.run({x64, Var(exact.gamma), Var(exact.beta)}, {});
  // The float32 mean has an error of up to half a unit in the last place of 1e4, 5e-4. E[x²] - E[x]² in float32 would
  // have an error of 8 for a variance of 4.
  for (int64_t i = 0; i < y.value().numel(); ++i) ASSERT_NEAR(y.value().item(i), y64.value().item(i), 2e-3);
}

TEST(BatchNorm, Float32GradientsFollowFloat64) {
  for (bool training : {true, false})
    for (bool relu : {true, false})
      for (const Shape& shape : {Shape{5, 37, 41, 3}, Shape{3, 11, 13, 17}, Shape{4, 7, 7, 300}}) {
        const Case single = Case(shape, DType::f32), exact = single.to(DType::f64);
        const BatchNormOptions options{.training = training, .relu = relu};
        auto gradients = [&](const Case& c) {
          const std::vector<Var> in{Var(c.x, true), Var(c.gamma, true), Var(c.beta, true)};
          const Tensor weight = random_tensor(c.x.shape(), DType::f32, 9).to(c.x.dtype());
          const Var y = c.run(in, options);
          test::backward_from(y, weight);
          return std::vector{values(in[0].grad()), values(in[1].grad()), values(in[2].grad())};
        };
        const auto a = gradients(single), b = gradients(exact);
        for (size_t input = 0; input < 3; ++input) {
          double error = 0, norm = 0;  // compared in norm: single elements may fall on the other side of the kink
          for (size_t i = 0; i < a[input].size(); ++i) {
            error += std::pow(a[input][i] - b[input][i], 2);
            norm += std::pow(b[input][i], 2);
          }
          EXPECT_LE(std::sqrt(error / norm), 2e-6) << shape << " input " << input << " relu " << relu;
        }
      }
}

TEST(BatchNorm, FusedReluEqualsSeparateReluBitForBit) {
  for (bool training : {true, false}) {
    const Case c({3, 11, 13, 17}, DType::f32);
    auto run = [&](bool fused) {
      const std::vector<Var> in{Var(c.x, true), Var(c.gamma, true), Var(c.beta, true)};
      const Var y = c.run(in, {.training = training, .relu = fused});
      const Var z = fused ? y : ops::relu(y);
      test::backward_from(z, [&] { return random_tensor({3, 11, 13, 17}, DType::f32, 9); });
      return std::vector{values(z.value()), values(in[0].grad()), values(in[1].grad()), values(in[2].grad())};
    };
    EXPECT_EQ(run(true), run(false));
  }
}

// The fused residual must equal separate operations in float32 bits: the value and all four gradients.
TEST(BatchNorm, FusedResidualEqualsSeparateAddBitForBit) {
  for (bool training : {true, false})
    for (bool relu : {true, false})
      for (const Shape& shape : {Shape{2, 1}, Shape{3, 11, 13, 17}, Shape{2, 15, 17, 64}}) {
        const Case c(shape, DType::f32);
        auto run = [&](bool fused) {
          const std::vector<Var> in{Var(c.x, true), Var(c.gamma, true), Var(c.beta, true)};
          const Var residual(random_tensor(shape, DType::f32, 7), true);
          const Tensor mean = c.running_mean.clone(), var = c.running_var.clone();
          BatchNormOptions options{.training = training, .relu = fused && relu};
          Var y = ops::batch_norm(in[0], in[1], in[2], mean, var, options, fused ? residual : Var());
          if (!fused) y = relu ? ops::add_relu(y, residual) : ops::add(y, residual);
          test::backward_from(y, [&] { return random_tensor(shape, DType::f32, 9); });
          return std::vector{values(y.value()),       values(in[0].grad()), values(in[1].grad()), values(in[2].grad()),
                             values(residual.grad()), values(mean),         values(var)};
        };
        EXPECT_EQ(run(true), run(false)) << shape << " training " << training << " relu " << relu;
      }
}

// Backward overwrites dy only if it holds the only reference. Here another variable and the test hold references.
TEST(BatchNorm, DoesNotOverwriteASharedGradient) {
  for (bool with_residual : {true, false}) {
    const Shape shape{3, 5, 5, 7};
    const Case c(shape, DType::f32);
    const Var x(c.x, true), residual(random_tensor(shape, DType::f32, 7), true);
    const Tensor dy = random_tensor(shape, DType::f32, 9), kept = dy.clone();
    auto run = [&](bool shared) {
      x.clear_grad();
      const Var y = ops::batch_norm(x, Var(c.gamma), Var(c.beta), c.running_mean.clone(), c.running_var.clone(),
                                    {.relu = true}, with_residual ? residual : Var());
      test::backward_from(y, [&] { return shared ? dy : dy.clone(); });
      return values(x.grad());
    };
    EXPECT_EQ(run(true), run(false));
    EXPECT_EQ(values(dy), values(kept));
  }
}

// Outliers a million deviations from the other values, in a row that the estimate of the mean reads. The sums are then
// computed a second time.
TEST(BatchNorm, StatisticsWhenTheEstimateOfTheMeanIsFarOff) {
  for (double offset : {0.0, 1e4, -3e6}) {
    Tensor x({4096, 3}, DType::f32);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = static_cast<float>(offset + static_cast<double>(i % 7));
    for (int64_t i : {0, 1, 1536 * 3}) x.data<float>()[i] += 1e6f;
    const Tensor mean({3}, DType::f64), variance({3}, DType::f64);
    batch_norm_statistics(Cpu{}, x, mean, variance);
    for (int64_t c = 0; c < 3; ++c) {
      double m = 0, v = 0;
      for (int64_t r = 0; r < 4096; ++r) m += x.item(r * 3 + c) / 4096;
      for (int64_t r = 0; r < 4096; ++r) v += std::pow(x.item(r * 3 + c) - m, 2) / 4096;
      // Sums of 256 float32 squares in four lanes have a rounding error below 64 · 2⁻²⁴ of the total.
      EXPECT_NEAR(mean.item(c), m, 2e-6 * std::sqrt(v) + 1e-12 * std::abs(m)) << offset << " " << c;
      EXPECT_NEAR(variance.item(c), v, 4e-6 * v) << offset << " " << c;
    }
  }
  const Tensor same = Tensor::full({1000, 2}, 0.1), mean({2}, DType::f64), variance({2}, DType::f64);
  batch_norm_statistics(Cpu{}, same, mean, variance);
  EXPECT_EQ(variance.item(), 0);
  EXPECT_EQ(mean.item(), same.item());
}

// For bfloat16 x and dy the kernels must equal the float32 kernels on the same numbers, with y and dx rounded once.
// Relative to float64 the error is half a unit of bfloat16, 2⁻⁸, plus the float32 error (see
// EqualsTheDefinitionForAllSizes).
TEST(BatchNorm, Bfloat16IsFloat32RoundedOnce) {
  for (bool training : {true, false})
    for (bool relu : {true, false})
      for (const Shape& shape :
           {Shape{2, 1}, Shape{5, 37, 41, 3}, Shape{3, 11, 13, 17}, Shape{2, 15, 17, 64}, Shape{4, 7, 7, 300}}) {
        const Case single = Case(shape, DType::f32), exact = single.to(DType::f64);
        const Tensor x = single.x.to(DType::bf16), dy = random_tensor(shape, DType::f32, 9).to(DType::bf16);
        auto run = [&](const Case& c, DType dtype) {
          const std::vector<Var> in{Var(x.to(dtype), true), Var(c.gamma, true), Var(c.beta, true)};
          const Tensor mean = c.running_mean.clone(), var = c.running_var.clone();
          const Var y = ops::batch_norm(in[0], in[1], in[2], mean, var, {.training = training, .relu = relu});
          test::backward_from(y, [&] { return dy.to(dtype); });
          EXPECT_EQ(in[1].grad().dtype(), c.gamma.dtype());
          const bool half = dtype != DType::f64;
          return std::vector{values(half ? y.value().to(DType::bf16) : y.value()),
                             values(half ? in[0].grad().to(DType::bf16) : in[0].grad()),
                             values(in[1].grad()),
                             values(in[2].grad()),
                             values(mean),
                             values(var)};
        };
        const auto half = run(single, DType::bf16), whole = run(single, DType::f32), reference = run(exact, DType::f64);
        EXPECT_EQ(half, whole) << shape << " training " << training << " relu " << relu;
        for (size_t i = 0; i < half[0].size(); ++i) {
          const double expected = reference[0][i];
          ASSERT_NEAR(half[0][i], expected, 0x1p-8 * std::abs(expected) + 1e-5 * (1 + std::abs(expected))) << shape;
        }
      }
}

TEST(BatchNorm, SameBitsOnAnyThreadCount) {
  for (const Shape& shape : {Shape{4, 33, 35, 16}, Shape{3, 9, 11, 300}, Shape{40000, 1}}) {
    const Case c(shape, DType::f32);
    auto run = [&] {
      const std::vector<Var> in{Var(c.x, true), Var(c.gamma, true), Var(c.beta, true)};
      const Tensor mean = c.running_mean.clone(), var = c.running_var.clone();
      const Var y = ops::batch_norm(in[0], in[1], in[2], mean, var, {.relu = true});
      test::backward_from(y, [&] { return random_tensor(shape, DType::f32, 9); });
      return std::vector{values(y.value()),    values(mean),         values(var),
                         values(in[0].grad()), values(in[1].grad()), values(in[2].grad())};
    };
    const auto one = with_threads(1, run);
    EXPECT_EQ(one, with_threads(2, run));
    EXPECT_EQ(one, with_threads(3, run));
  }
}

TEST(BatchNorm, SameBitsOnAnyVectorWidth) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{4, 33, 35, 16}, Shape{3, 9, 11, 300}, Shape{4001, 1}, Shape{5, 9, 11, 96}}) {
      const Case c(shape, DType::f32);
      c.gamma.data<float>()[0] = 1e-38f;  // gives subnormal results
      c.beta.data<float>()[0] = 0;
      auto run = [&](int bits) {
        const ContextGuard guard([&](Context& next) { next.vector_bits = bits; });
        const std::vector<Var> in{Var(c.x.to(dtype), true), Var(c.gamma, true), Var(c.beta, true)};
        const Var residual(random_tensor(shape, DType::f32, 7).to(dtype), true);
        const Var y = ops::batch_norm(in[0], in[1], in[2], c.running_mean.clone(), c.running_var.clone(),
                                      {.relu = true}, residual);
        const Var z = c.run({y, in[1], in[2]}, {.relu = true});
        test::backward_from(z, [&] { return random_tensor(shape, DType::f32, 9).to(dtype); });
        return std::vector{values(z.value()), values(in[0].grad()), values(in[1].grad()), values(residual.grad())};
      };
      EXPECT_EQ(run(128), run(256));
      EXPECT_EQ(run(128), run(512));
    }
}

TEST(BatchNorm, NaNReachesTheOutputAndTheGradients) {
  const Case c({4, 3}, DType::f32);
  c.x.data<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  const Var x(c.x, true);
  const Var y = c.run({x, Var(c.gamma), Var(c.beta)}, {.relu = true});
  test::backward_from(y, [&] { return Tensor::full({4, 3}, 1); });
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isnan(y.value().item(i)), i % 3 == 1) << i;
    EXPECT_EQ(std::isnan(x.grad().item(i)), i % 3 == 1) << i;
  }
}

TEST(BatchNorm, NamesInvalidArguments) {
  auto message = [](const Shape& shape, int64_t channels, DType dtype = DType::f32, BatchNormOptions options = {}) {
    const Tensor ones = Tensor::full({channels}, 1, dtype);
    try {
      ops::batch_norm(Var(Tensor::zeros(shape)), Var(ones), Var(ones), ones, ones, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({1, 1, 1, 3}, 3),
            "batch_norm: training needs more than one value per channel, x is [1, 1, 1, 3]; use a larger batch or "
            "larger images");
  EXPECT_EQ(message({0, 3}, 3),
            "batch_norm: training needs more than one value per channel, x is [0, 3]; use a larger batch or larger "
            "images");
  EXPECT_EQ(message({1, 1, 1, 3}, 3, DType::f32, {.training = false}), "no error");
  EXPECT_EQ(message({0, 3}, 3, DType::f32, {.training = false}), "no error");
  EXPECT_EQ(message({2, 3}, 4), "batch_norm: gamma is float32 [4], x is float32 [2, 3]");
  EXPECT_EQ(message({2, 3}, 3, DType::f64), "batch_norm: gamma is float64 [3], x is float32 [2, 3]");
  EXPECT_EQ(message({3}, 3), "batch_norm: x must be [.., channels], got [3]");
  EXPECT_EQ(message({2, 3}, 3, DType::f32, {.momentum = 1.5}), "batch_norm: momentum must be in [0, 1], got 1.5");
  EXPECT_EQ(message({2, 3}, 3, DType::f32, {.eps = -1}), "batch_norm: eps must be finite and not negative, got -1");
}

}  // namespace batch_norm_test
}  // namespace godwit
