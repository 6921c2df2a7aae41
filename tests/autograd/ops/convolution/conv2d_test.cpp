#include "autograd/leaf.h"
#include "autograd/ops/convolution/conv2d.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <thread>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace conv2d_test {

using test::check_gradients;
using test::random_tensor;
using test::values;
using test::with_threads;

struct Case {
  Shape x, w;
  Conv2dOptions options;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  const Conv2dOptions& o = c.options;
  return out << "x " << c.x << " w " << c.w << " stride " << o.stride << " padding " << o.padding << " dilation "
             << o.dilation << " groups " << o.groups;
}

std::vector<Case> grid() {
  std::vector<Case> cases;
  for (int64_t batch : {1, 3})
    for (int64_t kernel : {1, 3, 7})
      for (int groups : {1, 2, 4})  // 4: depthwise, with two filters per channel
        for (int dilation : {1, 2})
          for (int padding : {0, 1, 3})
            for (int stride : {1, 2}) {
              const Case c{{batch, 9, 14, 4}, {8, kernel, kernel, 4 / groups}, {stride, padding, dilation, groups}};
              if (dilation * (kernel - 1) + 1 <= 9 + 2 * padding) cases.push_back(c);
            }
  return cases;
}

// Layers of ResNets, and sizes that are not multiples of any block.
std::vector<Case> layers() {
  return {{{4, 28, 28, 1}, {16, 3, 3, 1}, {.padding = 1}},
          {{4, 28, 28, 16}, {16, 3, 3, 16}, {.padding = 1}},
          {{4, 28, 28, 16}, {32, 3, 3, 16}, {.stride = 2, .padding = 1}},
          {{3, 7, 7, 64}, {64, 3, 3, 64}, {.padding = 1}},
          {{2, 14, 14, 64}, {128, 1, 1, 64}, {.stride = 2}},
          {{1, 32, 32, 3}, {64, 7, 7, 3}, {.stride = 2, .padding = 3}},
          {{1, 1, 1, 256}, {64, 1, 1, 256}, {}},
          {{2, 11, 5, 17}, {33, 3, 3, 17}, {.padding = 1}},
          {{2, 13, 13, 48}, {48, 3, 3, 1}, {.stride = 2, .padding = 1, .groups = 48}},
          {{1, 10, 10, 64}, {64, 3, 3, 8}, {.padding = 2, .dilation = 2, .groups = 8}},
          {{2, 6, 9, 5}, {7, 2, 4, 5}, {.stride = 3, .padding = 1}}};
}

// The definition, computed one multiplication at a time.
std::vector<double> direct(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const double *image = x.data<double>(), *filter = w.data<double>();
  const int64_t cg = s.c / s.groups, og = s.o / s.groups;
  std::vector<double> y;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t oy = 0; oy < s.ho; ++oy)
      for (int64_t ox = 0; ox < s.wo; ++ox)
        for (int64_t o = 0; o < s.o; ++o) {
          double sum = bias.data<double>()[o];
          for (int64_t ky = 0; ky < s.kh; ++ky)
            for (int64_t kx = 0; kx < s.kw; ++kx)
              for (int64_t i = 0; i < cg; ++i) {
                const int64_t iy = oy * s.stride + ky * s.dilation - s.padding;
                const int64_t ix = ox * s.stride + kx * s.dilation - s.padding;
                if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
                sum += image[((n * s.h + iy) * s.w + ix) * s.c + o / og * cg + i] *
                       filter[((o * s.kh + ky) * s.kw + kx) * cg + i];
              }
          y.push_back(sum);
        }
  return y;
}

// Runs all kernels of a convolution. Results and gradients are written to memory filled with NaN.
struct Results {
  Tensor y, dx, dw, db;

  Results(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& dy) {
    auto fresh = [&](const Tensor& like) {
      return Tensor::full(like.shape(), std::numeric_limits<double>::quiet_NaN(), like.dtype());
    };
    y = fresh(dy), dx = fresh(x), dw = fresh(w), db = fresh(bias);
    conv2d_forward(Cpu{}, s, x, w, bias, y);
    conv2d_backward_data(Cpu{}, s, dy, w, dx);
    conv2d_backward_weights(Cpu{}, s, x, dy, dw, db);
  }

  bool operator==(const Results& other) const {
    return values(y) == values(other.y) && values(dx) == values(other.dx) && values(dw) == values(other.dw) &&
           values(db) == values(other.db);
  }
};

struct Inputs {
  Conv2dShape s;
  Tensor x, w, bias, dy;  // x and dy: float32 or bfloat16; w and bias: float32

  explicit Inputs(const Case& c, DType dtype = DType::f32)
      : s(conv2d_shape(c.x, c.w, c.options)),
        x(random_tensor(c.x, DType::f32, 1).to(dtype)),
        w(random_tensor(c.w, DType::f32, 2)),
        bias(random_tensor({s.o}, DType::f32, 3)),
        dy(random_tensor({s.n, s.ho, s.wo, s.o}, DType::f32, 4).to(dtype)) {}

  Results run() const { return Results(s, x, w, bias, dy); }
  // The results in float64. With `absolute`, the results of absolute inputs, which bound the rounding errors.
  Results exact(bool absolute) const {
    auto wide = [&](const Tensor& t) {
      Tensor result = t.to(DType::f64);
      if (absolute)
        for (double& value : result.span<double>()) value = std::abs(value);
      return result;
    };
    return Results(s, wide(x), wide(w), wide(bias), wide(dy));
  }
};

// Rounding error of a sum of k products in any order: at most (k + 1) · u · Σ|a·b|, with u = 2⁻²⁴. A bfloat16 result
// adds the rounding of its filters and of itself, 2⁻⁸ each, and their product.
void expect_close(const Tensor& x, const Tensor& exact, const Tensor& size, int64_t terms, const char* name) {
  const double bound = static_cast<double>(terms + 2) * 0x1p-24 + (x.dtype() == DType::bf16 ? 0x1p-7 + 0x1p-16 : 0);
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_LE(std::abs(x.item(i) - exact.item(i)), bound * size.item(i) + 1e-30) << name << ", element " << i;
}

void expect_agrees(const Case& c, DType dtype) {
  const Inputs inputs(c, dtype);
  const Conv2dShape& s = inputs.s;
  const Results single = inputs.run(), exact = inputs.exact(false), size = inputs.exact(true);
  expect_close(single.y, exact.y, size.y, s.kh * s.kw * (s.c / s.groups) + 1, "y");
  expect_close(single.dx, exact.dx, size.dx, s.kh * s.kw * (s.o / s.groups), "dx");
  expect_close(single.dw, exact.dw, size.dw, s.n * s.ho * s.wo, "dw");
  expect_close(single.db, exact.db, size.db, s.n * s.ho * s.wo, "db");
}

TEST(Conv2d, Float64AgreesWithTheDefinition) {
  for (const auto& cases : {grid(), layers()})
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::PrintToString(c));
      const Conv2dShape s = conv2d_shape(c.x, c.w, c.options);
      const Tensor x = random_tensor(c.x, DType::f64, 1), w = random_tensor(c.w, DType::f64, 2);
      const Tensor bias = random_tensor({s.o}, DType::f64, 3);
      const std::vector<double> expected = direct(s, x, w, bias);
      const Tensor y = ops::conv2d(Var(x), Var(w), Var(bias), c.options).value();
      ASSERT_EQ(y.shape(), (Shape{s.n, s.ho, s.wo, s.o}));
      // Up to 600 products of order 1: rounding stays far below 1e-12.
      for (int64_t i = 0; i < y.numel(); ++i) ASSERT_NEAR(y.item(i), expected[static_cast<size_t>(i)], 1e-12);
    }
}

TEST(Conv2d, GradientsAgreeWithDifferences) {
  for (int64_t kernel : {1, 3})
    for (int groups : {1, 2})
      for (int dilation : {1, 2})
        for (int padding : {0, 1})
          for (int stride : {1, 2}) {
            const Conv2dOptions options{stride, padding, dilation, groups};
            const std::vector<Tensor> inputs{random_tensor({2, 5, 6, 2}),
                                             random_tensor({4, kernel, kernel, 2 / groups}), random_tensor({4})};
            check_gradients([&](const auto& in) { return ops::conv2d(in[0], in[1], in[2], options); }, inputs);
          }
}

TEST(Conv2d, GradientsOfUnusualCases) {
  check_gradients([](const auto& in) { return ops::conv2d(in[0], in[1]); },
                  {random_tensor({1, 3, 3, 1}), random_tensor({1, 3, 3, 1})});
  check_gradients([](const auto& in) { return ops::conv2d(in[0], in[1], {.stride = 3, .padding = 3}); },
                  {random_tensor({1, 4, 7, 3}), random_tensor({2, 2, 1, 3})});
}

TEST(Conv2d, Float32AgreesWithFloat64OnTheGrid) {
  for (const Case& c : grid()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    with_threads(1, [&] { expect_agrees(c, DType::f32); });
  }
}

TEST(Conv2d, Float32AgreesWithFloat64OnLayersOnAnyThreadCount) {
  for (int threads : {1, 2, 3})
    for (const Case& c : layers()) {
      SCOPED_TRACE(::testing::PrintToString(c));
      with_threads(threads, [&] { expect_agrees(c, DType::f32); });
    }
}

TEST(Conv2d, Bfloat16AgreesWithFloat64OnTheGrid) {
  for (const Case& c : grid()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    with_threads(1, [&] { expect_agrees(c, DType::bf16); });
  }
}

TEST(Conv2d, Bfloat16AgreesWithFloat64OnLayersOnAnyThreadCount) {
  for (int threads : {1, 2, 3})
    for (const Case& c : layers()) {
      SCOPED_TRACE(::testing::PrintToString(c));
      with_threads(threads, [&] { expect_agrees(c, DType::bf16); });
    }
}

TEST(Conv2d, Bfloat16DataGradientsOfManyChannels) {
  for (const int padding : {0, 1, 2})
    for (const auto& [o, c] : {std::pair{256, 288}, {320, 256}})
      with_threads(2, [&, o = o, c = c] {
        expect_agrees({{2, 4, 5, c}, {o, 3, 3, c}, {.padding = padding}}, DType::bf16);
      });
}

// Fills the pool's memory with 1e30, so that reads of uninitialized memory change the result.
TEST(Conv2d, Bfloat16ImagesNarrowerThanTheStride) {
  for (int kernel : {2, 3, 5})
    for (int64_t channels : {16, 32}) {
      const Case c{{2, 5, 1, channels}, {16, kernel, kernel, channels}, {.stride = 2, .padding = kernel / 2}};
      SCOPED_TRACE(::testing::PrintToString(c));
      with_threads(1, [&] {
        Tensor::full({1 << 20}, 1e30);
        expect_agrees(c, DType::bf16);
      });
    }
}

TEST(Conv2d, Bfloat16ImagesHaveFloat32ParametersAndTheirGradients) {
  const Inputs in(layers()[2], DType::bf16);
  const Var x(in.x, true), w(in.w, true), bias(in.bias, true);
  const Var y = ops::conv2d(x, w, bias, {.stride = 2, .padding = 1});
  EXPECT_EQ(y.dtype(), DType::bf16);
  test::backward_from(y, in.dy);
  const Results expected = in.run();
  EXPECT_EQ(values(y.value()), values(expected.y));
  for (const auto& [var, gradient, type] :
       {std::tuple{x, expected.dx, DType::bf16}, {w, expected.dw, DType::f32}, {bias, expected.db, DType::f32}}) {
    EXPECT_EQ(var.grad().dtype(), type);
    EXPECT_EQ(values(var.grad()), values(gradient));
  }
}

TEST(Conv2d, Float64GivesTheSameBitsOnAnyThreadCount) {
  for (const Case& c : layers()) {
    const Inputs inputs(c);
    const Results one = with_threads(1, [&] { return inputs.exact(false); });
    const Results three = with_threads(3, [&] { return inputs.exact(false); });
    EXPECT_TRUE(one == three) << c;
  }
}

TEST(Conv2d, IsReproducible) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : layers())
      with_threads(2, [&] {
        const Inputs inputs(c, dtype);
        const Results first = inputs.run();
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(inputs.run() == first) << dtype << " " << c;
      });
}

TEST(Conv2d, ConcurrentRanksGetTheBitsOfASingleRank) {
  std::vector<Results> alone;
  for (const Case& c : layers()) alone.push_back(with_threads(1, [&] { return Inputs(c).run(); }));
  std::array<int, 8> same{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.emplace_back([&, rank] {
      ContextGuard guard(Context{.rank = rank, .threads = 1});
      const std::vector<Case> cases = layers();
      for (size_t i = 0; i < cases.size(); ++i)  // each rank starts with a different case
        if (const size_t at = (i + static_cast<size_t>(rank)) % cases.size(); Inputs(cases[at]).run() == alone[at])
          ++same[static_cast<size_t>(rank)];
    });
  for (std::thread& rank : ranks) rank.join();
  for (int count : same) EXPECT_EQ(count, static_cast<int>(alone.size()));
}

TEST(Conv2d, WeightGradientIsWrittenDirectlyToItsBucket) {
  Var x(random_tensor({2, 5, 5, 3}, DType::f32)), w(random_tensor({4, 3, 3, 3}, DType::f32), true);
  Tensor flat = Tensor::full({200}, 7, DType::f32);
  Leaf(w).rebind(Tensor({4, 3, 3, 3}), flat.range(50, 108).view({4, 3, 3, 3}));
  w.value().fill(1);
  auto step = [&] {
    Var y = ops::conv2d(x, w);
    test::backward_from(y, [&] { return Tensor::full(y.shape(), 1); });
  };
  step();
  const Conv2dShape s = conv2d_shape(x.shape(), w.shape(), {});
  Tensor expected({4, 3, 3, 3});
  conv2d_backward_weights(Cpu{}, s, x.value(), Tensor::full({2, 3, 3, 4}, 1), expected, Tensor());
  EXPECT_EQ(w.grad().to_vector<float>(), expected.to_vector<float>());
  EXPECT_TRUE(w.grad().same_memory(flat.range(50, 108)));
  EXPECT_EQ(flat.item(49), 7);
  EXPECT_EQ(flat.item(158), 7);
  step();
  for (int64_t i = 0; i < 108; ++i) EXPECT_EQ(w.grad().item(i), 2 * expected.item(i));
}

TEST(Conv2d, AVariableUsedAsImageAndFilterGetsBothGradients) {
  auto sum_of_squares = [](const Var& x, const Var& w) {
    Var y = ops::conv2d(x, w, {.padding = 1});
    test::backward_from(y, y.value());
  };
  const Tensor value = random_tensor({2, 3, 3, 2});
  Var both(value, true), x(value, true), w(value, true);
  sum_of_squares(both, both);
  sum_of_squares(x, w);
  for (int64_t i = 0; i < value.numel(); ++i) EXPECT_EQ(both.grad().item(i), x.grad().item(i) + w.grad().item(i));
}

TEST(Conv2d, OnlyTheBiasMayNeedAGradient) {
  Var x(random_tensor({2, 3, 3, 2})), w(random_tensor({3, 1, 1, 2}));
  check_gradients([&](const auto& in) { return ops::conv2d(x, w, in[0]); }, {random_tensor({3})});
}

std::string message(const Shape& x, const Shape& w, const Conv2dOptions& options, const Shape& bias = {}) {
  const Var b = bias.rank() ? Var(Tensor::zeros(bias)) : Var();
  return error_of([&] { ops::conv2d(Var(Tensor::zeros(x)), Var(Tensor::zeros(w)), b, options); });
}

TEST(Conv2d, NamesInvalidArguments) {
  EXPECT_EQ(message({8, 56, 56, 32}, {64, 3, 3, 64}, {}),
            "conv2d: weight expects 64 input channels, x is [8, 56, 56, 32]");
  EXPECT_EQ(message({8, 56, 56, 32}, {64, 3, 3, 32}, {.groups = 2}),
            "conv2d: weight expects 64 input channels, x is [8, 56, 56, 32]");
  EXPECT_NE(message({8, 56, 32}, {64, 3, 3, 32}, {}).find("[n, h, w, c]"), std::string::npos);
  EXPECT_NE(message({8, 5, 5, 32}, {64, 288}, {}).find("[out, kh, kw, in]"), std::string::npos);
  EXPECT_NE(message({1, 4, 9, 2}, {2, 5, 5, 2}, {}).find("height of x is 4"), std::string::npos);
  EXPECT_NE(message({1, 9, 4, 2}, {2, 3, 3, 2}, {.dilation = 2}).find("spans 5 pixels"), std::string::npos);
  EXPECT_NE(message({1, 4, 4, 4}, {3, 1, 1, 2}, {.groups = 2}).find("3 output channels"), std::string::npos);
  EXPECT_NE(message({1, 4, 4, 2}, {2, 1, 1, 2}, {.stride = 0}).find("stride is 0"), std::string::npos);
  EXPECT_NE(message({1, 4, 4, 2}, {2, 1, 1, 2}, {.padding = -1}).find("padding -1"), std::string::npos);
  EXPECT_NE(message({0, 4, 4, 2}, {2, 1, 1, 2}, {}).find("x is empty"), std::string::npos);
  EXPECT_NE(message({1, 4, 4, 2}, {0, 1, 1, 2}, {}).find("weight is empty"), std::string::npos);
  EXPECT_NE(message({1, 4, 4, 2}, {2, 1, 1, 2}, {}, {3}).find("bias must be"), std::string::npos);
  EXPECT_THROW(ops::conv2d(Var(Tensor::zeros({1, 4, 4, 2})), Var(Tensor::zeros({2, 1, 1, 2}, DType::f64))), Error);
  for (const auto& [x, w] : {std::pair{DType::bf16, DType::bf16}, {DType::f32, DType::bf16}, {DType::f16, DType::f32}})
    EXPECT_THROW(ops::conv2d(Var(Tensor::zeros({1, 4, 4, 2}, x)), Var(Tensor::zeros({2, 1, 1, 2}, w))), Error);
  EXPECT_THROW(ops::conv2d(Var(Tensor::zeros({1, 4, 4, 2}, DType::i32)), Var(Tensor::zeros({2, 1, 1, 2}, DType::i32))),
               Error);
}

}  // namespace conv2d_test
}  // namespace godwit
