#include "autograd/ops/convolution/conv2d_weights_avx512.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/philox.h"
#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace conv2d_weights_avx512_test {

using test::with_threads;

bool can_run() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

// Small integers, whose sums are exact in float32 in any order.
Tensor whole_numbers(Shape shape, uint64_t seed) {
  RandomStream random(seed, Purpose::test);
  Tensor x(shape);
  for (float& value : x.span<float>()) value = static_cast<float>(random.below(17)) - 8;
  return x.to(DType::bf16);
}

struct Case {
  Shape x;
  int64_t o, kernel;
  Conv2dOptions options;
};

// One panel and many panels, of rows and of images; odd numbers of images and rows; more outputs than channels, and
// fewer; odd row lengths, one pixel wide, narrower than the stride; blocks that end within 1024, and fewer channels.
const std::vector<Case> kCases{
    {{1, 1, 1, 32}, 32, 1, {}},
    {{3, 5, 7, 64}, 32, 1, {}},
    {{16, 14, 14, 32}, 1056, 1, {}},
    {{2, 28, 28, 1088}, 32, 1, {}},
    {{4, 9, 9, 64}, 64, 1, {.stride = 2}},
    {{5, 7, 7, 64}, 96, 3, {.padding = 1}},
    {{2, 57, 55, 64}, 64, 3, {.padding = 1}},
    {{3, 14, 14, 96}, 64, 3, {.stride = 2, .padding = 1}},
    {{2, 13, 11, 32}, 64, 5, {.stride = 3, .padding = 2}},
    {{2, 5, 1, 32}, 32, 3, {.stride = 2, .padding = 1}},
    {{2, 6, 9, 32}, 32, 4, {}},
    {{40, 2, 2, 64}, 64, 3, {.padding = 1}},
    {{3, 5, 1, 32}, 32, 1, {.stride = 2}},
    {{1, 9, 9, 64}, 32, 3, {.padding = 1}},
    {{6, 7, 7, 1088}, 32, 3, {.padding = 1}},
    {{10, 15, 15, 256}, 64, 3, {.stride = 2, .padding = 1}},
    {{7, 8, 9, 32}, 512, 1, {.stride = 2}},
};

TEST(Conv2dWeightsAvx512, SumsAreExact) {
  if (!can_run()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::PrintToString(c.x.str()));
    const Conv2dShape s = conv2d_shape(c.x, {c.o, c.kernel, c.kernel, c.x[3]}, c.options);
    ASSERT_TRUE(detail::fits_weights_avx512(s));
    const Tensor x = whole_numbers(c.x, 1), dy = whole_numbers({s.n, s.ho, s.wo, s.o}, 2);
    const Tensor exact({s.o, s.kh, s.kw, s.c}, DType::f64);
    conv2d_backward_weights(Cpu{}, s, x.to(DType::f64), dy.to(DType::f64), exact, Tensor());
    for (int threads : {1, 3}) {
      const Tensor dw = Tensor::full(exact.shape(), std::numeric_limits<double>::quiet_NaN());
      with_threads(threads, [&] { detail::conv2d_weights_avx512(s, x, dy, dw); });
      ASSERT_EQ(dw.to(DType::f64).to_vector<double>(), exact.to_vector<double>()) << threads << " threads";
    }
  }
}

TEST(Conv2dWeightsAvx512, SameBitsOnAnyThreadCount) {
  if (!can_run()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  const Conv2dShape s = conv2d_shape({3, 14, 14, 96}, {128, 3, 3, 96}, {.padding = 1});
  const Tensor x = test::random_tensor({3, 14, 14, 96}, DType::f32, 1).to(DType::bf16);
  const Tensor dy = test::random_tensor({3, 14, 14, 128}, DType::f32, 2).to(DType::bf16);
  const auto run = [&] {
    const Tensor dw({128, 3, 3, 96});
    detail::conv2d_weights_avx512(s, x, dy, dw);
    return dw.to_vector<float>();
  };
  const std::vector<float> one = with_threads(1, run);
  for (int threads : {2, 3, 7}) EXPECT_EQ(with_threads(threads, run), one) << threads;
}

TEST(Conv2dWeightsAvx512, RefusesOtherShapes) {
  for (const auto& [c, o, groups, dilation] :
       {std::array{31, 32, 1, 1}, {32, 48, 1, 1}, {64, 64, 2, 1}, {32, 32, 1, 2}})
    EXPECT_FALSE(detail::fits_weights_avx512(
        conv2d_shape({1, 8, 8, c}, {o, 3, 3, c / groups}, {.padding = 2, .dilation = dilation, .groups = groups})))
        << c << " " << o << " " << groups << " " << dilation;
}

}  // namespace conv2d_weights_avx512_test
}  // namespace godwit
