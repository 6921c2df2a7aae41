// Attention with fewer heads of keys and values than of queries.
#include "engine/context.h"
#include "tests/autograd/ops/attention/attention_cases.h"

namespace godwit {
namespace grouped_attention_test {

using test::check_gradients, test::kDraws, test::mask_of, test::random_tensor, test::run;
using test::Sizes, test::tensors, test::with_threads;

// Groups of two and four heads; blocks of queries and keys.
TEST(GroupedAttention, Gradients) {
  struct Case {
    Sizes s;
    int64_t kv_heads;
  };
  for (const auto& [s, kv_heads] :
       {Case{{2, 5, 5, 4, 3}, 2}, {{1, 3, 9, 4, 2}, 1}, {{1, 7, 7, 6, 2}, 3}, {{1, 99, 133, 2, 1}, 1}}) {
    const Shape keys{s.batch, s.keys, kv_heads, s.width};
    const std::vector<Tensor> inputs{random_tensor(s.q(), DType::f64, 1), random_tensor(keys, DType::f64, 2),
                                     random_tensor(keys, DType::f64, 3)};
    const AttentionOptions causal{.dropout = 0.3, .key = kDraws, .causal = true};
    check_gradients([&](const auto& in) { return ops::attention(in[0], in[1], in[2], {}, causal); }, inputs);
    if (s.queries > 9) continue;
    const Tensor gaps = mask_of(s.batch, s.keys, [](int64_t b, int64_t j) { return (j + b) % 3 != 1; });
    check_gradients([&](const auto& in) { return ops::attention(in[0], in[1], in[2], gaps); }, inputs);
  }
}

// x [batch, length, kv_heads, width] with each head repeated.
Tensor repeated(const Tensor& x, int64_t group) {
  const int64_t width = x.dim(3), rows = x.numel() / width;
  const Tensor wide = x.view({rows, width}), y({rows * group, width}, x.dtype());
  for (int64_t i = 0; i < rows * group; ++i) y.rows(i, 1).copy_from(wide.rows(i / group, 1));
  return y.view({x.dim(0), x.dim(1), x.dim(2) * group, width});
}

// Result and dq have equal bits. dk and dv are the sums over the heads of a group, rounded once.
TEST(GroupedAttention, EqualsRepeatedKeysAndValues) {
  const int64_t group = 3;
  for (const Sizes& s : {Sizes{2, 5, 7, 6, 8}, {1, 130, 200, 3, 20}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      for (const int bits : {128, 512}) {
        const ContextGuard guard([&](Context& next) { next.vector_bits = bits; });
        auto t = tensors(s, dtype);
        for (Tensor* x : {&t[1], &t[2]})
          *x = random_tensor({s.batch, s.keys, s.heads / group, s.width}, DType::f32, x == &t[1] ? 2 : 3).to(dtype);
        const AttentionOptions options{.dropout = 0.1, .key = kDraws, .causal = true};
        const auto grouped = run(t, {}, options);
        const auto apart = run({t[0], repeated(t[1], group), repeated(t[2], group), t[3]}, {}, options);
        EXPECT_EQ(grouped.all[0], apart.all[0]) << dtype;
        EXPECT_EQ(grouped.all[1], apart.all[1]) << dtype;
        // Up to 390 terms of order 1. In bfloat16 the separate gradients are rounded to 2⁻⁹ each.
        const double unit = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-5 : 0x1p-5;
        for (size_t r : {2u, 3u})
          for (size_t i = 0; i < grouped.all[r].size(); ++i) {
            const size_t width = static_cast<size_t>(s.width), first = i / width * group * width + i % width;
            double sum = 0;
            for (size_t k = 0; k < group; ++k) sum += apart.all[r][first + k * width];
            ASSERT_NEAR(grouped.all[r][i], sum, unit * std::max(1.0, std::abs(sum))) << dtype << " " << r << " " << i;
          }
        EXPECT_EQ(with_threads(3, [&] { return run(t, {}, options); }),
                  with_threads(1, [&] { return run(t, {}, options); }));
      }
}

}  // namespace grouped_attention_test
}  // namespace godwit
