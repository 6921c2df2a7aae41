#include "autograd/ops/convolution/conv2d_filters.h"

#include <gtest/gtest.h>

#include "engine/half.h"
#include "tests/autograd/gradient_check.h"

namespace godwit {
namespace conv2d_filters_test {

using detail::FilterBlocks;

// Layouts named as in oneDNN: AcdB48a2b and similar ones, and ABcd8a16b2a.
FilterBlocks by_inputs(int64_t o, int64_t k, int64_t i, int64_t block) {
  const int64_t padded = (o + block - 1) / block * block;
  return {{padded, i, k, k}, {block * i * k * k, 2 * block, block * i * k, block * i}, {{0, block}, {1, 2}}};
}
FilterBlocks by_outputs(int64_t o, int64_t k, int64_t i) {
  return {{o, i, k, k}, {i * k * k * 16, k * k * 256, k * 256, 256}, {{0, 8}, {1, 16}, {0, 2}}};
}

// turned: w is [i, k, k, o], and its taps are in reverse order.
void expect_arranged(int64_t o, int64_t k, int64_t i, const FilterBlocks& blocks, bool turned = false) {
  const Tensor w = test::random_tensor(turned ? Shape{i, k, k, o} : Shape{o, k, k, i}, DType::f32, 1);
  const int64_t size = blocks.padded[0] * i * k * k;
  const Tensor to = Tensor::full({size}, 7, DType::bf16);
  ASSERT_TRUE(turned ? detail::arrange_turned_filters(w, blocks, to) : detail::arrange_filters(w, blocks, to));
  for (int64_t a = 0; a < blocks.padded[0]; ++a)
    for (int64_t y = 0; y < k; ++y)
      for (int64_t x = 0; x < k; ++x)
        for (int64_t b = 0; b < i; ++b) {
          int64_t left[] = {a, b}, at = 0, step = 1;  // inner blocks, the innermost first
          for (size_t n = blocks.inner.size(); n-- > 0;) {
            const auto [dimension, count] = blocks.inner[n];
            at += left[dimension] % count * step;
            left[dimension] /= count;
            step *= count;
          }
          at +=
              left[0] * blocks.strides[0] + left[1] * blocks.strides[1] + y * blocks.strides[2] + x * blocks.strides[3];
          const int64_t from = turned ? ((b * k + k - 1 - y) * k + k - 1 - x) * o + a : ((a * k + y) * k + x) * i + b;
          const float value = a < o ? w.data<float>()[from] : 0;
          ASSERT_EQ(to.data<bf16>()[at].bits, bf16(value).bits) << a << " " << y << " " << x << " " << b;
        }
}

TEST(Conv2dFilters, MatchesTheLayoutFormula) {
  for (const int threads : {1, 3})
    test::with_threads(threads, [] {
      for (const auto& [o, k, i] : {std::array<int64_t, 3>{16, 1, 16}, {64, 3, 48}, {128, 1, 80}, {32, 2, 32}}) {
        SCOPED_TRACE(::testing::Message() << o << " " << k << " " << i);
        for (const int64_t block : {16, 32, 48, 64}) {
          expect_arranged(o, k, i, by_inputs(o, k, i, block));
          expect_arranged(o, k, i, by_inputs(o, k, i, block), true);
        }
        expect_arranged(o, k, i, by_outputs(o, k, i));
      }
      return 0;
    });
}

TEST(Conv2dFilters, RefusesOtherLayouts) {
  const Tensor w({64, 1, 1, 32}), odd({64, 1, 1, 3}), to({64 * 64}, DType::bf16);
  EXPECT_FALSE(detail::arrange_filters(w, {{64, 32, 1, 1}, {512, 512, 512, 512}, {{1, 8}, {0, 16}, {1, 2}}}, to));
  EXPECT_FALSE(detail::arrange_filters(w, {{64, 32, 1, 1}, {512, 512, 512, 512}, {{0, 8}, {1, 2}}}, to));
  EXPECT_FALSE(detail::arrange_filters(w, {{64, 32, 1, 1}, {1, 64, 1, 1}, {}}, to));
  EXPECT_FALSE(detail::arrange_filters(odd, by_inputs(64, 1, 4, 64), to));
  EXPECT_FALSE(detail::arrange_turned_filters(odd, by_inputs(3, 1, 64, 64), to));
  EXPECT_FALSE(detail::arrange_turned_filters(w, by_outputs(32, 1, 64), to));
}

}  // namespace conv2d_filters_test
}  // namespace godwit
