// Attention on a GPU compared with the CPU: values, log sums, gradients, and the bits of the dropout mask.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/leaf.h"
#include "autograd/ops/attention/attention.h"
#include "autograd/ops/attention/cuda/attention_mma.h"
#include "engine/context.h"
#include "tests/autograd/gradient_check.h"
#include "tests/autograd/ops/attention/attention_cases.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_attention_test {

using test::random_tensor, test::values;

struct Sizes {
  int64_t batch, queries, keys, heads, width;
  int64_t group = 1;  // heads that share keys and values
  Shape q() const { return {batch, queries, heads, width}; }
  Shape k() const { return {batch, keys, heads / group, width}; }
};
std::ostream& operator<<(std::ostream& to, const Sizes& s) {
  return to << s.batch << " x " << s.queries << " on " << s.keys << ", " << s.heads << " heads of " << s.width;
}

const DropoutKey kDraws{.seed = 0x123456789abcdef, .step = 7, .site = 3, .sender = 2};

Tensor mask_of(const Sizes& s, const std::function<bool(int64_t, int64_t)>& counts) {
  Tensor mask({s.batch, s.keys}, DType::u8, kCpu);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.data<uint8_t>()[i] = counts(i / s.keys, i % s.keys) ? 1 : 0;
  return mask;
}

// Masks: none; padding, longer in later batch entries; gaps; unmasked keys in the first batch entry only.
std::vector<Tensor> masks(const Sizes& s) {
  return {Tensor(), mask_of(s, [&](int64_t b, int64_t j) { return j < std::max<int64_t>(1, s.keys / (b + 1) - 1); }),
          mask_of(s, [](int64_t b, int64_t j) { return (j + b) % 5 != 1; }),
          mask_of(s, [](int64_t b, int64_t) { return b == 0; })};
}

using Inputs = std::array<Tensor, 4>;  // q, k, v and the gradient of the result

Inputs inputs(const Sizes& s, DType dtype) {
  auto make = [&](const Shape& shape, uint64_t seed) { return random_tensor(shape, DType::f32, seed).to(dtype); };
  return {make(s.q(), 1), make(s.k(), 2), make(s.k(), 3), make(s.q(), 4)};
}

Inputs to(DType dtype, Inputs t) {
  for (Tensor& x : t) x = x.to(dtype);
  return t;
}

// Computes out, dq, dk, dv and the log sums on the context's device.
std::vector<std::vector<double>> results(const Inputs& t, const Tensor& mask, const AttentionOptions& options) {
  const Device device = context().device;
  std::vector<Var> in;
  for (int i = 0; i < 3; ++i) in.emplace_back(t[size_t(i)].to(device).clone(), true);
  const Var out = ops::attention(in[0], in[1], in[2], mask, options);
  test::backward_from(out, t[3].to(device));
  std::vector<std::vector<double>> all{values(out.value().to(kCpu))};
  for (const Var& x : in) all.push_back(values(x.grad().to(kCpu)));
  const AttentionTensors tensors{in[0].value(),
                                 in[1].value(),
                                 in[2].value(),
                                 mask.defined() ? mask.to(device) : mask,
                                 Tensor(t[0].shape(), t[0].dtype()),
                                 Tensor({t[0].dim(0), t[0].dim(2), t[0].dim(1)}, compute_dtype(t[0].dtype()))};
  on_device(tensors.q, [&](auto where) { attention_forward(where, tensors, options); });
  EXPECT_THAT(values(tensors.out.to(kCpu)), ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), all[0]));
  all.push_back(values(tensors.log_sums.to(kCpu)));
  return all;
}

const char* const kNames[] = {"out", "dq", "dk", "dv", "log_sums"};

class CudaAttention : public OnGpu {
 protected:
  // Each result must be within `tolerance` of the CPU's float64 result, relative to the largest value or 1.
  void expect_close(const Sizes& s, DType dtype, const Tensor& mask, const AttentionOptions& options,
                    double tolerance) {
    const Inputs t = inputs(s, dtype);
    const auto expected = results(to(DType::f64, t), mask, options);
    const auto found = on_gpu([&] { return results(t, mask, options); });
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_EQ(found[r].size(), expected[r].size());
      double largest = 1;
      for (const double value : expected[r]) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0);
      for (size_t i = 0; i < expected[r].size(); ++i) {
        const size_t entry = i / (expected[r].size() / static_cast<size_t>(s.batch));
        if (r == 4 && empty(mask, static_cast<int64_t>(entry))) continue;  // log sums are undefined for these entries
        ASSERT_NEAR(found[r][i], expected[r][i], tolerance * largest)
            << kNames[r] << " " << i << " of " << dtype << " " << s << ", dropout " << options.dropout;
      }
    }
  }

  static bool empty(const Tensor& mask, int64_t entry) {
    for (int64_t j = 0; mask.defined() && j < mask.dim(1); ++j)
      if (mask.item(entry * mask.dim(1) + j) != 0) return false;
    return mask.defined();
  }
};

// Sums of up to 400 products of order 1, each rounded once. bfloat16 rounds results, probabilities and score gradients
// by 2⁻⁹ each; the rounded result enters the score gradients once more.
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-5 : 0x1p-7; }

const DType kTypes[] = {DType::f32, DType::bf16, DType::f64};

// Lengths: one value, partial tiles, whole tiles, several tiles. Widths: tile widths, and widths between them.
TEST_F(CudaAttention, MatchesTheCpu) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 64},
                         {3, 17, 17, 2, 32},
                         {2, 64, 64, 1, 64},
                         {2, 33, 70, 2, 20},
                         {2, 70, 33, 1, 7},
                         {1, 18, 21, 2, 128},
                         {2, 5, 40, 1, 72}})
    for (const DType dtype : kTypes) {
      ASSERT_NO_FATAL_FAILURE(expect_close(s, dtype, {}, {}, tolerance(dtype)));
      for (const Tensor& mask : masks(s))
        ASSERT_NO_FATAL_FAILURE(expect_close(s, dtype, mask, {.dropout = 0.2, .key = kDraws}, tolerance(dtype)));
    }
}

TEST_F(CudaAttention, MatchesTheCpuOverManyTiles) {
  for (const DType dtype : kTypes)
    for (const Sizes& s : {Sizes{1, 130, 130, 1, 64}, {1, 384, 384, 1, 32}, {1, 70, 140, 1, 128}}) {
      const Tensor padded = mask_of(s, [&](int64_t, int64_t j) { return j < s.keys - 75; });
      ASSERT_NO_FATAL_FAILURE(expect_close(s, dtype, padded, {.dropout = 0.1, .key = kDraws}, tolerance(dtype)));
    }
}

TEST_F(CudaAttention, CausalMatchesTheCpu) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 64},
                         {2, 17, 17, 2, 32},
                         {1, 33, 70, 2, 20},
                         {1, 5, 40, 1, 72},
                         {1, 18, 21, 2, 128},
                         {1, 150, 203, 1, 64},
                         {1, 70, 101, 1, 128},
                         {1, 300, 300, 1, 32}})
    for (const DType dtype : kTypes)
      for (const double dropout : {0.0, 0.2})
        ASSERT_NO_FATAL_FAILURE(
            expect_close(s, dtype, {}, {.dropout = dropout, .key = kDraws, .causal = true}, tolerance(dtype)));
}

TEST_F(CudaAttention, GroupedMatchesTheCpu) {
  for (const Sizes& s :
       {Sizes{2, 5, 7, 6, 64, 3}, {1, 33, 70, 4, 20, 2}, {1, 70, 70, 2, 128, 2}, {1, 150, 203, 3, 32, 3}})
    for (const DType dtype : kTypes) {
      ASSERT_NO_FATAL_FAILURE(
          expect_close(s, dtype, {}, {.dropout = 0.2, .key = kDraws, .causal = true}, tolerance(dtype)));
      ASSERT_NO_FATAL_FAILURE(expect_close(s, dtype, masks(s)[2], {}, tolerance(dtype)));
    }
}

TEST_F(CudaAttention, SelfAttentionEqualsAttention) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const bool causal : {false, true}) test::expect_self_attention_equals_attention(dtype, causal, 70);
}

// Gradients in a bucket begin at arbitrary addresses. The kernels for tensor cores write pairs of bfloat16.
TEST_F(CudaAttention, GradientsAtOddAddresses) {
  const int64_t batch = 2, length = 20, heads = 2, width = 16, count = batch * length * 3 * heads * width;
  const Shape shape{batch * length, 3 * heads * width};
  const Tensor all = random_tensor(shape).to(DType::bf16);
  const Tensor dy = random_tensor({batch * length, heads * width}, DType::f64, 2).to(DType::bf16);
  const auto gradient = [&](Device device, int64_t offset) {
    const Tensor memory = Tensor::full({count + 2}, 7, DType::bf16).to(device);
    const Var qkv(all.to(device), true);
    Leaf(qkv).rebind(all.to(device), memory.range(offset, count).view(shape));
    const Var y = ops::self_attention(qkv, batch, heads, {.causal = true});
    test::backward_from(y, [&] { return dy.to(device); });
    const std::vector<double> around = values(memory);
    for (const int64_t i : {int64_t{0}, int64_t{1}, count, count + 1})
      if (i < offset || i >= offset + count) {
        EXPECT_EQ(around[static_cast<size_t>(i)], 7) << i;
      }
    return values(qkv.grad());
  };
  const Device gpu = context().device;
  const std::vector<double> aligned = gradient(gpu, 0);
  for (const int64_t offset : {1, 2}) {
    const std::vector<double> got = gradient(gpu, offset);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], aligned[i], 0.03) << "offset " << offset << ", " << i;
  }
  const auto tensor = [&] { return Tensor({batch, length, heads, width}, DType::bf16, gpu); };
  const AttentionTensors t{.q = tensor(), .k = tensor(), .v = tensor(), .mask = {}, .out = tensor(), .log_sums = {}};
  const Tensor memory({t.q.numel() + 2}, DType::bf16, gpu);
  for (const int64_t offset : {0, 1, 2}) {
    const Tensor d = memory.range(offset, t.q.numel()).view(t.q.shape());
    for (const auto& g : {AttentionGradients{tensor(), d, {}, {}}, AttentionGradients{tensor(), {}, d, {}},
                          AttentionGradients{tensor(), {}, {}, d}})
      EXPECT_EQ(detail::attention_on_tensor_cores(t, g), offset != 1) << offset;
  }
}

TEST_F(CudaAttention, UsesTheScaleOption) {
  for (const DType dtype : kTypes)
    ASSERT_NO_FATAL_FAILURE(expect_close({1, 20, 30, 1, 64}, dtype, {}, {.scale = 0.3}, tolerance(dtype)));
}

// Each remainder of the number of keys modulo 4, for each width of the kernels with tensor cores, and for the kernels
// without tensor cores.
const Sizes kDropped[] = {{2, 67, 76, 1, 64}, {1, 35, 78, 2, 64},  {1, 9, 37, 3, 20},   {1, 33, 75, 1, 64},
                          {1, 40, 77, 1, 32}, {1, 70, 67, 1, 32},  {1, 18, 41, 1, 128}, {1, 19, 39, 2, 128},
                          {1, 9, 77, 1, 64},  {1, 9, 66, 1, 128},  {1, 9, 68, 1, 128}};

// x of a shape like q or k: row i of each head is 1 in column i - first, if there is one, and 0 elsewhere.
Tensor ones(const Shape& shape, int64_t first, DType dtype) {
  const Tensor x = Tensor::zeros(shape, DType::f32);
  const int64_t width = shape[3];
  for (int64_t row = 0; row < x.numel() / width; ++row) {
    const int64_t column = row / shape[2] % shape[1] - first;
    if (column >= 0 && column < width) x.data<float>()[row * width + column] = 1;
  }
  return x.to(dtype);
}

// All scores are equal, and each key's value has a single 1. A result is 0 exactly where the probability is dropped.
TEST_F(CudaAttention, DropsTheSameElementsAsTheCpu) {
  for (const Sizes& s : kDropped)
    for (const DType dtype : kTypes)
      for (int64_t first = 0; first < s.keys; first += s.width) {
        const Tensor zero = Tensor::zeros(s.q(), dtype), k = Tensor::zeros(s.k(), dtype), v = ones(s.k(), first, dtype);
        const AttentionOptions options{.dropout = 0.3, .key = kDraws};
        const auto kept = [&] {
          auto out = values(ops::attention(Var(zero.to(context().device)), Var(k.to(context().device)),
                                           Var(v.to(context().device)), {}, options)
                                .value()
                                .to(kCpu));
          for (double& value : out) value = value != 0;
          return out;
        };
        const auto expected = kept();
        ASSERT_GT(std::accumulate(expected.begin(), expected.end(), 0.0), 0);
        ASSERT_EQ(on_gpu(kept), expected) << dtype << " " << s << ", keys from " << first;
      }
}

// The same for the gradients. With a single 1 in the gradient of each result, a gradient of the values is 0 exactly
// where the probability is dropped. With a single 1 in each key, and equal values and gradients of the results, a
// gradient of the queries is positive where it is kept, and negative where it is dropped.
TEST_F(CudaAttention, GradientsDropTheSameElementsAsTheCpu) {
  const AttentionOptions options{.dropout = 0.3, .key = kDraws};
  for (const Sizes& s : kDropped)
    for (const DType dtype : kTypes) {
      const Tensor zero = Tensor::zeros(s.q(), dtype), v = Tensor::full(s.k(), 1, dtype);
      const auto expect_same_signs = [&](const Tensor& k, const Tensor& d_out, size_t gradient) {
        const auto signs = [&] {
          auto found = results({zero, k, v, d_out}, {}, options)[gradient];
          for (double& x : found) x = x > 0 ? 1 : x < 0 ? -1 : 0;
          return found;
        };
        const auto expected = signs();
        ASSERT_GT(std::count(expected.begin(), expected.end(), 1), 0);
        ASSERT_EQ(on_gpu(signs), expected) << kNames[gradient] << " of " << dtype << " " << s;
      };
      for (int64_t first = 0; first < s.queries; first += s.width)
        expect_same_signs(Tensor::zeros(s.k(), dtype), ones(s.q(), first, dtype), 3);
      for (int64_t first = 0; first < s.keys; first += s.width)
        expect_same_signs(ones(s.k(), first, dtype), Tensor::full(s.q(), 1.0 / static_cast<double>(s.width), dtype), 1);
    }
}

// The gradients have the same bits whether or not forward kept the dropout decisions.
TEST_F(CudaAttention, BackwardDrawsDecisionsThatWereNotKept) {
  const Sizes s{1, 66, 130, 2, 64};
  const AttentionOptions options{.dropout = 0.3, .key = kDraws};
  const Inputs in = inputs(s, DType::bf16);
  on_gpu([&] {
    const auto gpu = [](const Tensor& x) { return x.to(context().device); };
    AttentionTensors t{.q = gpu(in[0]),
                       .k = gpu(in[1]),
                       .v = gpu(in[2]),
                       .mask = {},
                       .out = Tensor(s.q(), DType::bf16),
                       .log_sums = Tensor({s.batch, s.heads, s.queries}, DType::f32)};
    EXPECT_FALSE(attention_kept(t, {}).defined());
    t.kept = attention_kept(t, options);
    EXPECT_EQ(t.kept.shape(), (Shape{s.batch * s.heads * s.queries, 8}));  // 256 bits for 130 keys
    attention_forward(cuda_of(t.q.device()), t, options);
    const auto gradients = [&] {
      const AttentionGradients d{gpu(in[3]), Tensor(s.q(), DType::bf16), Tensor(s.k(), DType::bf16),
                                 Tensor(s.k(), DType::bf16)};
      attention_backward(cuda_of(t.q.device()), t, options, d);
      return std::vector{values(d.q.to(kCpu)), values(d.k.to(kCpu)), values(d.v.to(kCpu))};
    };
    const auto expected = gradients();
    t.kept = {};
    EXPECT_EQ(gradients(), expected);
  });
}

// The tests cuda_races_* repeat this one: several blocks and tiles of every kernel on tensor cores.
TEST_F(CudaAttention, IsReproducible) {
  for (const Sizes& s : {Sizes{1, 66, 70, 1, 64}, {1, 130, 130, 1, 32}, {1, 66, 70, 1, 128}})
    for (const DType dtype : kTypes) {
      if (s.width != 64 && dtype != DType::bf16) continue;  // without tensor cores, all widths have the same barriers
      const Inputs t = inputs(s, dtype);
      const auto run = [&] { return results(t, masks(s)[1], {.dropout = 0.1, .key = kDraws}); };
      EXPECT_EQ(on_gpu(run), on_gpu(run)) << dtype << " " << s;
    }
}

TEST_F(CudaAttention, MaskedKeysDoNotAffectTheResult) {
  for (const int64_t width : {8, 64}) {
    const Sizes s{2, 5, 70, 1, width};
    const Tensor mask = mask_of(s, [](int64_t b, int64_t j) { return b == 1 ? j % 2 == 0 : j < 66; });
    for (const DType dtype : kTypes) {
      const Inputs t = inputs(s, dtype);
      Inputs spoilt = t;
      for (Tensor* x : {&spoilt[1], &spoilt[2]}) {
        const Tensor wide = x->to(DType::f64);
        for (int64_t i = 0; i < wide.numel(); ++i)
          if (mask.item(i / (s.heads * s.width)) == 0)
            wide.data<double>()[i] = std::numeric_limits<double>::quiet_NaN();
        *x = wide.to(dtype);
      }
      const AttentionOptions options{.dropout = 0.3, .key = kDraws};
      const auto clean = on_gpu([&] { return results(t, mask, options); });
      EXPECT_EQ(clean, on_gpu([&] { return results(spoilt, mask, options); })) << dtype;
      for (size_t r : {2u, 3u})
        for (size_t i = 0; i < clean[r].size(); ++i)
          if (mask.item(static_cast<int64_t>(i) / (s.heads * s.width)) == 0) {
            ASSERT_EQ(clean[r][i], 0) << kNames[r] << " " << i;
          }
    }
  }
}

TEST_F(CudaAttention, EntriesWithoutUnmaskedKeysGiveZero) {
  const Sizes s{2, 20, 70, 2, 32};
  for (const DType dtype : kTypes) {
    const auto all =
        on_gpu([&] { return results(inputs(s, dtype), mask_of(s, [](int64_t b, int64_t) { return b == 1; }), {}); });
    for (size_t r = 0; r < 4; ++r)
      for (size_t i = 0; i < all[r].size(); ++i)
        ASSERT_EQ(all[r][i] == 0, i < all[r].size() / 2) << kNames[r] << " " << i;
  }
}

TEST_F(CudaAttention, HugeScoresDoNotOverflow) {
  for (const int64_t width : {1, 64})
    for (const DType dtype : kTypes) {
      const auto first = [&](std::vector<double> of_rows) {
        const Tensor x = Tensor::zeros({1, static_cast<int64_t>(of_rows.size()), 1, width}, DType::f64);
        for (size_t i = 0; i < of_rows.size(); ++i) x.data<double>()[static_cast<int64_t>(i) * width] = of_rows[i];
        return x.to(dtype);
      };
      const Inputs t{first({200, -200}), first({150, -150, 149}), first({1, 2, 3}), first({1, 1})};
      const auto out = on_gpu([&] { return results(t, {}, {.scale = 1}); })[0];
      EXPECT_EQ(out[0], 1) << dtype;
      EXPECT_EQ(out[static_cast<size_t>(width)], 2) << dtype;
    }
}

TEST_F(CudaAttention, NaNAffectsOnlyItsRow) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const DType dtype : kTypes) {
      const Sizes s{1, 20, 70, 1, 64};
      Inputs t = to(DType::f64, inputs(s, dtype));
      t[0].data<double>()[3 * s.width] = bad;
      const auto out = on_gpu([&] { return results(to(dtype, t), {}, {}); })[0];
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i / 64 == 3) << dtype << " " << i;
    }
}

TEST_F(CudaAttention, OnlyOneInputMayNeedAGradient) {
  const Sizes s{2, 20, 37, 2, 64};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs t = inputs(s, dtype);
    const auto all = on_gpu([&] { return results(t, {}, {}); });
    for (size_t alone = 0; alone < 3; ++alone)
      on_gpu([&] {
        std::vector<Var> in;
        for (size_t i = 0; i < 3; ++i) in.emplace_back(t[i].to(context().device).clone(), i == alone);
        const Var out = ops::attention(in[0], in[1], in[2]);
        test::backward_from(out, t[3].to(context().device));
        EXPECT_EQ(values(in[alone].grad().to(kCpu)), all[1 + alone]) << dtype << " " << kNames[1 + alone];
      });
  }
}

TEST_F(CudaAttention, RefusesWideHeads) {
  EXPECT_THAT(on_gpu([] {
                const Var x(Tensor::zeros({1, 2, 1, 129}));
                return error_of([&] { ops::attention(x, x, x); });
              }),
              ::testing::HasSubstr("attention: on a GPU head_dim must be at most 128, q is [1, 2, 1, 129]"));
}

}  // namespace cuda_attention_test
}  // namespace godwit
