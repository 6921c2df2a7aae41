// Inputs of attention tests, and the results and gradients of one call.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "autograd/ops/attention/self_attention.h"
#include "engine/context.h"
#include "tests/autograd/gradient_check.h"

namespace godwit::test {

struct Sizes {
  int64_t batch, queries, keys, heads, width;
  Shape q() const { return {batch, queries, heads, width}; }
  Shape k() const { return {batch, keys, heads, width}; }
};

// A mask with 1 where counts(batch entry, key) is true.
inline Tensor mask_of(int64_t batch, int64_t keys, const std::function<bool(int64_t, int64_t)>& counts) {
  Tensor mask({batch, keys}, DType::u8);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.data<uint8_t>()[i] = counts(i / keys, i % keys) ? 1 : 0;
  return mask;
}

inline const DropoutKey kDraws{.seed = 0x123456789abcdef, .step = 7, .site = 3, .sender = 2};

struct Results {
  std::vector<std::vector<double>> all;  // out, dq, dk, dv
  bool operator==(const Results&) const = default;
};

inline Results run(const std::array<Tensor, 4>& t, const Tensor& mask, const AttentionOptions& options) {
  const std::vector<Var> in{Var(t[0], true), Var(t[1], true), Var(t[2], true)};
  const Var out = ops::attention(in[0], in[1], in[2], mask, options);
  backward_from(out, t[3]);
  Results results{{values(out.value())}};
  for (const Var& v : in) results.all.push_back(values(v.grad()));
  return results;
}

inline std::array<Tensor, 4> tensors(const Sizes& s, DType dtype) {
  auto make = [&](const Shape& shape, uint64_t seed) { return random_tensor(shape, DType::f32, seed).to(dtype); };
  return {make(s.q(), 1), make(s.k(), 2), make(s.k(), 3), make(s.q(), 4)};
}

inline std::array<Tensor, 4> widened(std::array<Tensor, 4> t) {
  for (Tensor& x : t) x = x.to(DType::f64);
  return t;
}

// Values and gradients of self_attention(), whose queries, keys and values are columns of one matrix, must equal those
// of attention() on separate tensors bit for bit, on the context's device. Without `causal`, some keys are masked.
inline void expect_self_attention_equals_attention(DType dtype, bool causal, int64_t length, QkvOrder order) {
  const int64_t batch = 2, heads = 3, width = 8, columns = heads * width, rows = batch * length;
  const Device device = context().device;
  const bool reversed = order == QkvOrder::values_first;
  const std::string what = godwit::detail::concat(dtype, causal ? ", causal, " : ", ", length,
                                                  reversed ? " tokens, values first" : " tokens");
  const AttentionOptions options{.dropout = 0.2, .key = {5, 1, 2, 0}, .causal = causal};
  const Tensor all = random_tensor({rows, 3 * columns}).to(dtype);
  const Tensor mask =
      causal ? Tensor()
             : mask_of(batch, length, [](int64_t entry, int64_t key) { return key % 3 != entry; }).to(device);
  const auto column = [&](int64_t p) { return (reversed ? 2 - p : p) * columns; };
  std::vector<Var> parts;
  for (int64_t p = 0; p < 3; ++p) {
    const Tensor part({batch, length, heads, width}, dtype);
    for (int64_t r = 0; r < rows; ++r)
      part.view({rows, columns}).rows(r, 1).copy_from(all.rows(r, 1).range(column(p), columns).view({1, columns}));
    parts.emplace_back(part.to(device), true);
  }
  const Var qkv(all.to(device), true);
  const Var y = ops::self_attention(qkv, batch, heads, options, mask, order);
  const Var expected = ops::attention(parts[0], parts[1], parts[2], mask, options);
  EXPECT_EQ(y.shape(), (Shape{rows, columns})) << what;
  EXPECT_EQ(values(y.value()), values(expected.value())) << what;
  const Tensor dy = random_tensor(y.shape(), DType::f64, 2).to(dtype).to(device);
  for (const Var& result : {y, expected})
    backward_from(result, dy.view(result.shape()));
  const std::vector<double> got = values(qkv.grad());
  for (int64_t p = 0; p < 3; ++p) {
    const std::vector<double> want = values(parts[static_cast<size_t>(p)].grad());
    for (int64_t i = 0; i < rows * columns; ++i)
      ASSERT_EQ(got[static_cast<size_t>(i / columns * 3 * columns + column(p) + i % columns)],
                want[static_cast<size_t>(i)])
          << what << ", part " << p << ", element " << i;
  }
}

inline void expect_self_attention_equals_attention(DType dtype, bool causal, int64_t length) {
  for (const QkvOrder order : {QkvOrder::queries_first, QkvOrder::values_first})
    expect_self_attention_equals_attention(dtype, causal, length, order);
}

}  // namespace godwit::test
