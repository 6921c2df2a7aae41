#include "autograd/leaf.h"
#include "autograd/ops/attention/attention.h"

#include <hwy/targets.h>

#include <limits>

#include "engine/context.h"
#include "tests/autograd/ops/attention/attention_cases.h"
#include "tests/support.h"

namespace godwit {
namespace attention_test {

using test::check_gradients, test::kDraws, test::mask_of, test::random_tensor, test::Results;
using test::run, test::Sizes, test::tensors, test::values, test::widened, test::with_threads;

// The definition, computed one probability at a time.
std::vector<double> oracle(const std::array<Tensor, 3>& t, const Tensor& mask, const AttentionOptions& options) {
  const int64_t queries = t[0].dim(1), keys = t[1].dim(1), heads = t[0].dim(2), width = t[0].dim(3);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
  const std::vector<double> q = values(t[0]), k = values(t[1]), v = values(t[2]);
  const std::vector<double> counts =
      mask.defined() ? values(mask) : std::vector<double>(static_cast<size_t>(t[1].dim(0) * keys), 1);
  std::vector<double> out(q.size()), p(static_cast<size_t>(keys));
  for (int64_t row = 0; row < t[0].dim(0) * queries * heads; ++row) {
    const int64_t b = row / (queries * heads), i = row / heads % queries, h = row % heads;
    const double* qi = q.data() + row * width;
    double* to = out.data() + row * width;
    auto key_row = [&](int64_t j) { return ((b * keys + j) * heads + h) * width; };
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const double* kj = k.data() + key_row(j);
      double score = 0;
      for (int64_t c = 0; c < width; ++c) score += qi[c] * kj[c];
      const bool seen = counts[size_t(b * keys + j)] != 0 && (!options.causal || j <= i + keys - queries);
      sum += p[size_t(j)] = seen ? std::exp(scale * score) : 0;
    }
    for (int64_t j = 0; j < keys && sum > 0; ++j) {
      const int64_t element = ((b * heads + h) * queries + i) * keys + j;
      const DropoutKey& key = options.key;
      const auto words = philox4x32({static_cast<uint32_t>(element / 4), key.step,
                                     static_cast<uint32_t>(Purpose::dropout) | key.site << 8, key.sender},
                                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
      if (to_unit(words[size_t(element % 4)]) < options.dropout) continue;
      const double factor = p[size_t(j)] / sum / (1 - options.dropout);
      for (int64_t c = 0; c < width; ++c) to[c] += factor * v[size_t(key_row(j) + c)];
    }
  }
  return out;
}

// Covers all kernel paths: one element, partial blocks of keys and queries, padding at the end, gaps.
TEST(Attention, Gradients) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1}, {2, 3, 5, 2, 3}, {1, 9, 7, 1, 8}, {1, 2, 9, 3, 17}}) {
    const std::vector<Tensor> inputs{random_tensor(s.q(), DType::f64, 1), random_tensor(s.k(), DType::f64, 2),
                                     random_tensor(s.k(), DType::f64, 3)};
    const Tensor padded = mask_of(s.batch, s.keys, [&](int64_t b, int64_t j) { return j < s.keys - b; });
    const Tensor gaps = mask_of(s.batch, s.keys, [&](int64_t b, int64_t j) { return (j + b) % 3 != 1; });
    for (const Tensor& mask : {Tensor(), padded, gaps})
      for (const double dropout : {0.0, 0.4}) {
        const AttentionOptions options{.dropout = dropout, .key = kDraws};
        check_gradients([&](const auto& in) { return ops::attention(in[0], in[1], in[2], mask, options); }, inputs);
      }
    check_gradients([](const auto& in) { return ops::attention(in[0], in[1], in[2], {}, {.scale = 0.3}); }, inputs);
  }
}

TEST(Attention, CausalGradients) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1}, {2, 5, 5, 2, 3}, {1, 3, 9, 1, 17}, {1, 99, 133, 1, 2}})
    for (const double dropout : {0.0, 0.4}) {
      const AttentionOptions options{.dropout = dropout, .key = kDraws, .causal = true};
      check_gradients([&](const auto& in) { return ops::attention(in[0], in[1], in[2], {}, options); },
                      {random_tensor(s.q(), DType::f64, 1), random_tensor(s.k(), DType::f64, 2),
                       random_tensor(s.k(), DType::f64, 3)});
    }
}

TEST(Attention, GradientsAcrossBlocks) {
  const Sizes s{1, 67, 131, 1, 2};
  check_gradients(
      [](const auto& in) { return ops::attention(in[0], in[1], in[2]); },
      {random_tensor(s.q(), DType::f64, 1), random_tensor(s.k(), DType::f64, 2), random_tensor(s.k(), DType::f64, 3)});
}

TEST(Attention, EqualsTheDefinition) {
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1}, {2, 3, 5, 2, 3}, {1, 128, 128, 1, 64}, {1, 65, 129, 2, 8}, {2, 70, 200, 1, 5}})
    for (const double dropout : {0.0, 0.1, 0.9})
      for (const std::string kind : {"all", "masked", "causal"}) {
        const Tensor q = random_tensor(s.q(), DType::f32, 1), k = random_tensor(s.k(), DType::f32, 2);
        const Tensor v = random_tensor(s.k(), DType::f32, 3);
        const Tensor mask = kind == "masked"
                                ? mask_of(s.batch, s.keys, [](int64_t b, int64_t j) { return (j + b) % 7 != 2; })
                                : Tensor();
        const AttentionOptions options{.dropout = dropout, .key = kDraws, .causal = kind == "causal"};
        const auto expected = oracle({q, k, v}, mask, options);
        auto run = [&](DType dtype) {
          return values(ops::attention(Var(q.to(dtype)), Var(k.to(dtype)), Var(v.to(dtype)), mask, options).value());
        };
        // Scores of order 1 to 10 and sums of `width` and `keys` terms have rounding errors of about 1e-6 in float32
        // and 1e-15 in float64. Dropout scales kept values by 1/(1 - dropout).
        const double size = 4 / (1 - dropout);
        const auto exact = run(DType::f64), single = run(DType::f32);
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_NEAR(exact[i], expected[i], 1e-14 * size);
          ASSERT_NEAR(single[i], expected[i], 1e-6 * size);
        }
      }
}

TEST(Attention, OneVariableAsQueryKeyAndValue) {
  const auto t = tensors({2, 5, 5, 2, 3}, DType::f64);
  const auto apart = run({t[0], t[0], t[0], t[3]}, {}, {});
  Var x(t[0], true);
  Leaf(x).rebind(t[0].clone(), Tensor(t[0].shape(), DType::f64));  // gives the gradient its own memory
  const Var out = ops::attention(x, x, x);
  test::backward_from(out, t[3]);
  const auto sum = values(x.grad());
  for (size_t i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(sum[i], apart.all[1][i] + apart.all[2][i] + apart.all[3][i], 1e-14) << i;
}

TEST(Attention, Float32AgreesWithFloat64WithEveryInstructionSet) {
  for (const Sizes& s : {Sizes{1, 128, 128, 1, 64}, {1, 97, 129, 2, 20}, {1, 7, 300, 1, 3}}) {
    for (const bool causal : {false, true}) {
      const AttentionOptions options{.dropout = 0.2, .key = kDraws, .causal = causal};
      const auto t = tensors(s, DType::f32);
      const auto exact = run(widened(t), {}, options);
      for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(target);
        const auto single = run(t, {}, options);
        hwy::SetSupportedTargetsForTest(0);
        for (size_t r = 0; r < 4; ++r)
          for (size_t i = 0; i < exact.all[r].size(); ++i)  // sums of up to 300 products of order 1, each rounded once
            ASSERT_NEAR(single.all[r][i], exact.all[r][i], 1e-5) << hwy::TargetName(target) << " " << r << " " << i;
      }
    }
  }
}

TEST(Attention, Bfloat16AgreesWithFloat64) {
  // One value; partial tiles; whole blocks; several blocks of queries and keys with partial ones. Masks with padding
  // and gaps.
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1}, {2, 33, 65, 2, 20}, {1, 128, 128, 1, 64}, {2, 101, 263, 1, 17}})
    for (const int bits : {128, 512})
      for (const std::string kind : {"all", "gaps", "causal"}) {
        // At 512: pairs of bfloat16 products, if the processor supports them.
        const ContextGuard guard([&](Context& next) { next.vector_bits = bits; });
        const Tensor mask =
            kind == "gaps"
                ? mask_of(s.batch, s.keys, [&](int64_t b, int64_t j) { return (j + b) % 5 != 1 && j < s.keys - b; })
                : Tensor();
        const AttentionOptions options{.scale = 0.2, .dropout = 0.1, .key = kDraws, .causal = kind == "causal"};
        const auto t = tensors(s, DType::bf16);
        const auto half = run(t, mask, options), exact = run(widened(t), mask, options);
        for (size_t r = 0; r < 4; ++r) {
          double largest = 0;
          for (const double value : exact.all[r]) largest = std::max(largest, std::abs(value));
          // Results of order 1 are rounded by 2⁻⁸; probabilities and score gradients may be too. The rounded output
          // enters the score gradients through Σ d_out · out.
          for (size_t i = 0; i < exact.all[r].size(); ++i)
            ASSERT_NEAR(half.all[r][i], exact.all[r][i], 0x1p-7 * std::max(1.0, largest))
                << s.q() << " " << bits << " " << kind << " " << r << " " << i;
        }
      }
}

// The products of a block of queries may multiply later values by 0, so the later values are finite here.
TEST(Attention, LaterKeysDoNotAffectCausalResults) {
  const Sizes s{2, 140, 150, 2, 8};
  constexpr int64_t kChanged = 20;  // of the last queries and keys
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto t = tensors(s, dtype);
    auto changed = t;
    for (Tensor* x : {&changed[1], &changed[2]}) {
      *x = x->to(DType::f64);
      for (int64_t i = 0; i < x->numel(); ++i)
        if (i / (s.heads * s.width) % s.keys >= s.keys - kChanged) x->data<double>()[i] += 100;
      *x = x->to(dtype);
    }
    const AttentionOptions options{.dropout = 0.1, .key = kDraws, .causal = true};
    const auto before = run(t, {}, options).all[0], after = run(changed, {}, options).all[0];
    for (size_t i = 0; i < before.size(); ++i) {
      const int64_t query = static_cast<int64_t>(i) / (s.heads * s.width) % s.queries;
      if (query < s.queries - kChanged) {
        ASSERT_EQ(before[i], after[i]) << dtype << " " << i;
      }
    }
    EXPECT_NE(before, after);
  }
}

TEST(Attention, MaskedKeysDoNotAffectTheResult) {
  const Sizes s{3, 5, 150, 2, 8};
  const Tensor mask = mask_of(s.batch, s.keys, [](int64_t b, int64_t j) { return b == 1 ? j % 2 == 0 : j < 140 - b; });
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto t = tensors(s, dtype);
    auto spoilt = t;
    for (Tensor* x : {&spoilt[1], &spoilt[2]}) {
      const Tensor wide = x->to(DType::f64);
      for (int64_t i = 0; i < wide.numel(); ++i)
        if (mask.item(i / (s.heads * s.width)) == 0) wide.data<double>()[i] = std::numeric_limits<double>::quiet_NaN();
      *x = wide.to(dtype);
    }
    const AttentionOptions options{.dropout = 0.3, .key = kDraws};
    const auto clean = run(t, mask, options);
    EXPECT_EQ(clean, run(spoilt, mask, options));
    for (size_t r : {2u, 3u})
      for (size_t i = 0; i < clean.all[r].size(); ++i)
        if (mask.item(static_cast<int64_t>(i) / (s.heads * s.width)) == 0) {
          ASSERT_EQ(clean.all[r][i], 0) << i;
        }
  }
}

TEST(Attention, RowsWithoutUnmaskedKeysGiveZero) {
  const Sizes s{2, 3, 5, 2, 4};
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const auto t = tensors(s, dtype);
    const auto results = run(t, mask_of(2, 5, [](int64_t b, int64_t) { return b == 1; }), {});
    for (const auto& result : results.all)
      for (size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i] == 0, i < result.size() / 2) << i;
  }
}

TEST(Attention, HugeScoresDoNotOverflow) {
  const Tensor q = Tensor::of<float>({200, -200}, {1, 2, 1, 1}), k = Tensor::of<float>({150, -150, 149}, {1, 3, 1, 1});
  const Tensor v = Tensor::of<float>({1, 2, 3}, {1, 3, 1, 1});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Var out = ops::attention(Var(q.to(dtype)), Var(k.to(dtype)), Var(v.to(dtype)));
    EXPECT_EQ(values(out.value()), (std::vector<double>{1, 2}));
  }
}

TEST(Attention, NaNAffectsOnlyItsRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto t = tensors({1, 20, 9, 1, 4}, DType::f32);
    t[0].data<float>()[3 * 4] = bad;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (Tensor& x : t) x = x.to(dtype);
      const auto out = run(t, {}, {}).all[0];
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 4 == 3) << i;
    }
  }
}

TEST(Attention, SameBitsOnAnyThreadCount) {
  const Sizes s{3, 70, 140, 5, 16};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto t = tensors(s, dtype);
    const Tensor mask = mask_of(s.batch, s.keys, [](int64_t b, int64_t j) { return j < 140 - 40 * b; });
    for (const bool causal : {false, true}) {
      const AttentionOptions options{.dropout = 0.1, .key = kDraws, .causal = causal};
      const auto with = [&](int threads) {
        return with_threads(threads, [&] { return run(t, causal ? Tensor() : mask, options); });
      };
      for (const int threads : {2, 3, 7}) EXPECT_EQ(with(1), with(threads));
    }
  }
}

TEST(Attention, KeepsTheFractionGivenByDropout) {
  const Sizes s{4, 64, 64, 4, 1};
  const Tensor zero = Tensor::zeros(s.q(), DType::f64), one = Tensor::full(s.k(), 1, DType::f64);
  const AttentionOptions options{.dropout = 0.1, .key = kDraws};
  double mean = 0;
  const auto out = values(ops::attention(Var(zero), Var(zero), Var(one), {}, options).value());
  for (const double value : out) mean += value / static_cast<double>(out.size());
  // 65536 draws with variance p/(1 - p) = 1/9; tolerance of five standard deviations.
  EXPECT_NEAR(mean, 1, 5 * std::sqrt(1.0 / 9 / 65536));
  AttentionOptions other = options;
  other.key.step += 1;
  EXPECT_NE(values(ops::attention(Var(zero), Var(zero), Var(one), {}, other).value()), out);
}

// The limit of 4 MiB is a quarter of the float32 probabilities of 2048 queries and keys.
TEST(Attention, MemoryIsLinearInTheLength) {
  const auto peak = [](int64_t length, bool causal) {
    const auto t = tensors({1, length, length, 1, 4}, DType::f32);
    Pool& pool = *context().pool;
    pool.reset_peak();
    const int64_t before = pool.stats().bytes_in_use;
    with_threads(1, [&] { return run(t, {}, {.dropout = 0.1, .key = kDraws, .causal = causal}); });
    return pool.stats().peak_bytes_in_use - before;
  };
  for (const bool causal : {false, true}) {
    const int64_t half = peak(1024, causal), whole = peak(2048, causal);
    EXPECT_LE(whole, 4 << 20);
    EXPECT_LE(whole, 2.1 * static_cast<double>(half));
  }
}

TEST(Attention, NamesInvalidArguments) {
  auto message = [](const Shape& q, const Shape& k, const Shape& v, const Tensor& mask = {},
                    const AttentionOptions& options = {}) {
    return error_of(
        [&] { ops::attention(Var(Tensor::zeros(q)), Var(Tensor::zeros(k)), Var(Tensor::zeros(v)), mask, options); });
  };
  const Shape x{2, 3, 4, 5};
  EXPECT_EQ(message({2, 3, 20}, x, x), "attention: q must be [batch, length, heads, head_dim], got [2, 3, 20]");
  EXPECT_EQ(message(x, {2, 7, 4, 6}, {2, 7, 4, 6}),
            "attention: k must be [2, length, heads, 5] as q is [2, 3, 4, 5], got [2, 7, 4, 6]");
  EXPECT_EQ(message(x, {2, 7, 3, 5}, {2, 7, 3, 5}),
            "attention: 4 heads of q do not divide into groups for 3 heads of k, q is [2, 3, 4, 5], k [2, 7, 3, 5]");
  EXPECT_EQ(message(x, {2, 7, 4, 5}, x), "attention: v must be [2, 7, 4, 5] as k is, got [2, 3, 4, 5]");
  EXPECT_EQ(message(x, x, x, Tensor::zeros({2, 4}, DType::u8)),
            "attention: mask must be uint8 [2, 3], got uint8 [2, 4]");
  EXPECT_EQ(message(x, x, x, Tensor::zeros({2, 3})), "attention: mask must be uint8 [2, 3], got float32 [2, 3]");
  EXPECT_NE(message({0, 3, 4, 5}, {0, 3, 4, 5}, {0, 3, 4, 5}).find("nothing to compute"), std::string::npos);
  EXPECT_EQ(message(x, x, x, Tensor::zeros({2, 3}, DType::u8), {.causal = true}),
            "attention: causal attention takes no mask");
  EXPECT_EQ(message(x, {2, 2, 4, 5}, {2, 2, 4, 5}, {}, {.causal = true}),
            "attention: causal attention needs at least as many keys as queries, q is [2, 3, 4, 5], k [2, 2, 4, 5]");
  EXPECT_EQ(message(x, x, x, {}, {.dropout = 1}), "attention: dropout must be in [0, 1), got 1");
  EXPECT_EQ(message(x, x, x, {}, {.dropout = 0.5, .key = {.site = 1 << 24}}),
            "attention: the dropout's site must be below 2^24, got 16777216");
  EXPECT_EQ(message(x, x, x, {}, {.scale = std::numeric_limits<double>::infinity()}),
            "attention: scale must be finite, got inf");
  EXPECT_THROW(ops::attention(Var(Tensor::zeros(x)), Var(Tensor::zeros(x, DType::f64)), Var(Tensor::zeros(x))), Error);
  const Var half(Tensor::zeros(x, DType::f16));
  EXPECT_THROW(ops::attention(half, half, half), Error);
}

}  // namespace attention_test
}  // namespace godwit
