#include "autograd/ops/pooling/pool2d.h"

#include <limits>

#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace pool2d_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

struct Case {
  Shape shape;
  Pool2dOptions options;
};

const std::vector<Case> kCases{{{2, 4, 6, 3}, {2, 2, 0}},  {{1, 7, 5, 17}, {3, 2, 1}}, {{1, 5, 5, 1}, {3, 1, 1}},
                               {{2, 3, 3, 64}, {3, 3, 0}}, {{1, 8, 7, 2}, {2, 3, 1}},  {{1, 6, 6, 2}, {5, 1, 2}},
                               {{1, 9, 9, 1}, {1, 2, 0}},  {{1, 2, 2, 3}, {4, 2, 2}},  {{1, 16, 17, 1}, {16, 1, 8}}};

// Returns f(values of the window that lie inside x) for every output, row by row.
template <class F>
std::vector<double> oracle(const Tensor& x, const Pool2dOptions& o, F f) {
  std::vector<double> y;
  const Shape shape = pool2d_shape(x, o, "oracle");
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t r = 0; r < shape[1]; ++r)
      for (int64_t q = 0; q < shape[2]; ++q)
        for (int64_t c = 0; c < shape[3]; ++c) {
          std::vector<double> window;
          for (int64_t i = r * o.stride - o.padding; i < r * o.stride - o.padding + o.kernel; ++i)
            for (int64_t j = q * o.stride - o.padding; j < q * o.stride - o.padding + o.kernel; ++j)
              if (i >= 0 && i < x.dim(1) && j >= 0 && j < x.dim(2))
                window.push_back(x.item(((n * x.dim(1) + i) * x.dim(2) + j) * x.dim(3) + c));
          y.push_back(f(window));
        }
  return y;
}

// Distinct multiples of 0.01 in random order: the step of the differences never changes the maximum of a window.
Tensor distinct(Shape shape, DType dtype = DType::f64) {
  Tensor x(shape, DType::f64);
  RandomStream random(3, Purpose::test);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t j = random.below(static_cast<uint32_t>(i + 1));
    x.data<double>()[i] = x.data<double>()[j];
    x.data<double>()[j] = 0.01 * static_cast<double>(i) - 1;
  }
  return x.to(dtype);
}

TEST(MaxPool2d, Gradients) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.shape << " kernel " << c.options.kernel);
    check_gradients([&](const auto& in) { return ops::max_pool2d(in[0], c.options); }, {distinct(c.shape)});
  }
}

TEST(AvgPool2d, Gradients) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.shape << " kernel " << c.options.kernel);
    check_gradients([&](const auto& in) { return ops::avg_pool2d(in[0], c.options); }, {random_tensor(c.shape)});
  }
}

TEST(Pool2d, ValuesInBothTypes) {
  for (const Case& c : kCases)
    for (DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = random_tensor(c.shape, dtype);
      const auto largest = oracle(x, c.options, [](const auto& w) { return *std::max_element(w.begin(), w.end()); });
      EXPECT_EQ(values(ops::max_pool2d(Var(x), c.options).value()), largest) << c.shape;
      const auto mean = oracle(x, c.options, [&](const auto& w) {
        double sum = 0;
        for (double v : w) sum += v;
        return sum / (c.options.kernel * c.options.kernel);
      });
      const auto y = values(ops::avg_pool2d(Var(x), c.options).value());
      ASSERT_EQ(y.size(), mean.size());
      for (size_t i = 0; i < y.size(); ++i)  // sums of up to 256 values of order 1
        ASSERT_NEAR(y[i], mean[i], dtype == DType::f32 ? 2e-6 : 1e-14) << c.shape;
    }
}

// With few significand bits, ties are common. Values and gradients must be those of float32 on the same numbers,
// rounded once.
TEST(Pool2d, Bfloat16IsFloat32RoundedOnce) {
  for (const Case& c : kCases)
    for (bool max : {true, false}) {
      const Tensor x = random_tensor(c.shape, DType::f32).to(DType::bf16);
      auto run = [&](DType dtype) {
        Var in(x.to(dtype), true);
        const Var y = max ? ops::max_pool2d(in, c.options) : ops::avg_pool2d(in, c.options);
        test::backward_from(y, [&] { return random_tensor(y.shape(), DType::f32, 2).to(DType::bf16).to(dtype); });
        return std::pair{values(y.value().to(DType::bf16)), values(in.grad().to(DType::bf16))};
      };
      EXPECT_EQ(run(DType::bf16), run(DType::f32)) << c.shape << " max " << max;
    }
}

TEST(MaxPool2d, TheFirstOfEqualMaximaGetsTheGradient) {
  Var x(Tensor::full({1, 3, 3, 2}, 7), true);
  const Var y = ops::max_pool2d(x, {3, 2, 1});
  test::backward_from(y, [&] { return Tensor::of<float>({1, 10, 2, 20, 3, 30, 4, 40}, {1, 2, 2, 2}); });
  EXPECT_EQ(x.grad().to_vector<float>(),
            (std::vector<float>{1, 10, 2, 20, 0, 0, 3, 30, 4, 40, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(MaxPool2d, NaNAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto& [window, tap] : {std::pair{std::vector<float>{1, nan, 3, nan}, 1},
                                    {{nan, 9, 3, 4}, 0},
                                    {{-inf, -inf, -inf, -inf}, 0},
                                    {{-inf, 2, inf, 4}, 2}}) {
    Tensor y({1, 1, 1, 1}), taps({1, 1, 1, 1}, DType::u8);
    max_pool2d_forward(Cpu{}, Tensor::of(window, {1, 2, 2, 1}), {2, 2, 0}, y, taps);
    EXPECT_EQ(taps.item(), tap);
    const float expected = window[static_cast<size_t>(tap)];
    EXPECT_TRUE(y.item() == expected || (std::isnan(expected) && std::isnan(y.item())));
  }
}

TEST(Pool2d, SameBitsOnAnyThreadCount) {
  const Tensor x = random_tensor({3, 29, 31, 65}, DType::f32), dy = random_tensor({3, 15, 16, 65}, DType::f32, 2);
  auto run = [&](bool max) {
    Var in(x, true);
    const Var y = max ? ops::max_pool2d(in, {3, 2, 1}) : ops::avg_pool2d(in, {3, 2, 1});
    test::backward_from(y, dy);
    return std::pair{values(y.value()), values(in.grad())};
  };
  for (bool max : {true, false})
    EXPECT_EQ(with_threads(1, [&] { return run(max); }), with_threads(2, [&] { return run(max); }));
}

TEST(Pool2d, NamesInvalidArguments) {
  auto message = [](const Tensor& x, Pool2dOptions options) {
    try {
      ops::max_pool2d(Var(x), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const Tensor x = Tensor::zeros({2, 4, 5, 3});
  EXPECT_EQ(message(Tensor::zeros({4, 5, 3}), {2, 2, 0}), "max_pool2d: x must be [n, h, w, c], got [4, 5, 3]");
  EXPECT_EQ(message(x, {0, 2, 0}), "max_pool2d: kernel and stride must be at least 1, got 0 and 2");
  EXPECT_EQ(message(x, {2, 0, 0}), "max_pool2d: kernel and stride must be at least 1, got 2 and 0");
  EXPECT_EQ(message(x, {3, 2, 2}), "max_pool2d: padding must be in [0, kernel / 2], got 2 with kernel 3");
  EXPECT_EQ(message(x, {5, 1, 0}), "max_pool2d: a window of 5 with padding 0 does not fit into x [2, 4, 5, 3]");
  EXPECT_EQ(message(Tensor::zeros({1, 20, 20, 1}), {17, 1, 0}), "max_pool2d: kernel is 17, at most 16 is supported");
  EXPECT_EQ(message(Tensor::zeros({2, 4, 5, 3}, DType::i32), {2, 2, 0}),
            "max_pool2d: takes float32, bfloat16 or float64, not int32");
  EXPECT_EQ(message(Tensor::zeros({0, 4, 5, 3}), {2, 2, 0}), "no error");
}

}  // namespace pool2d_test
}  // namespace godwit
