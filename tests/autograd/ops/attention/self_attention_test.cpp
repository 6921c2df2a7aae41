#include "autograd/ops/attention/self_attention.h"

#include <gmock/gmock.h>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace {

using testing::check_gradients, testing::random_tensor, testing::values;

TEST(SelfAttention, Gradients) {
  struct Case {
    int64_t batch, length, heads, width;
  };
  for (const Case& c : {Case{1, 1, 1, 1}, Case{2, 3, 2, 4}, Case{1, 5, 3, 2}}) {
    const Tensor qkv = random_tensor({c.batch * c.length, 3 * c.heads * c.width});
    for (const double dropout : {0.0, 0.4})
      check_gradients(
          [&](const auto& in) {
            return ops::self_attention(in[0], c.batch, c.heads, {.dropout = dropout, .key = {7, 3, 1, 0}});
          },
          {qkv});
  }
}

// Values and gradients must equal those of attention() on separate tensors, bit for bit.
TEST(SelfAttention, EqualsAttention) {
  const int64_t batch = 2, length = 5, heads = 3, width = 8, columns = heads * width, rows = batch * length;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const AttentionOptions options{.dropout = 0.2, .key = {5, 1, 2, 0}};
    const Tensor all = random_tensor({rows, 3 * columns}).to(dtype);
    Tensor part[3];
    for (int64_t p = 0; p < 3; ++p) {
      part[p] = Tensor({batch, length, heads, width}, dtype);
      for (int64_t r = 0; r < rows; ++r)
        part[p].view({rows, columns}).rows(r, 1).copy_from(all.rows(r, 1).range(p * columns, columns));
    }
    const Var qkv(all, true), q(part[0], true), k(part[1], true), v(part[2], true);
    const Var y = ops::self_attention(qkv, batch, heads, options), expected = ops::attention(q, k, v, {}, options);
    EXPECT_EQ(y.shape(), (Shape{rows, columns}));
    EXPECT_EQ(values(y.value()), values(expected.value()));
    const Tensor dy = random_tensor(y.shape(), DType::f64, 2).to(dtype);
    for (const Var& result : {y, expected})
      backward(Var::result(Tensor::zeros({}), {result}, [g = result.gradient(), dy, s = result.shape()](const Tensor&) {
        g.add(dy.view(s));
      }));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < 3 * columns; ++c) {
        const Var& of = c < columns ? q : c < 2 * columns ? k : v;
        ASSERT_EQ(qkv.grad().item(r * 3 * columns + c), of.grad().item(r * columns + c % columns)) << r << " " << c;
      }
  }
}

TEST(SelfAttention, NamesInvalidArguments) {
  const auto error = [](Shape shape, int64_t batch, int64_t heads, AttentionOptions options = {}) {
    return error_of([&] { ops::self_attention(Var(Tensor::zeros(shape)), batch, heads, options); });
  };
  EXPECT_THAT(error({6}, 2, 1), ::testing::HasSubstr("qkv must be"));
  EXPECT_THAT(error({6, 6}, 4, 1), ::testing::HasSubstr("a batch of 4"));
  EXPECT_THAT(error({6, 6}, 2, 4), ::testing::HasSubstr("4 heads"));
  EXPECT_THAT(error({6, 6}, 2, 2, {.dropout = 1}), ::testing::HasSubstr("dropout must be in [0, 1)"));
  EXPECT_THROW(ops::self_attention(Var(Tensor::zeros({6, 6}, DType::i32)), 2, 2), Error);
}

}  // namespace
}  // namespace godwit
