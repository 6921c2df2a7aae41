#include "autograd/ops/attention/self_attention.h"

#include <gmock/gmock.h>

#include "tests/autograd/gradient_check.h"
#include "tests/autograd/ops/attention/attention_cases.h"
#include "tests/support.h"

namespace godwit {
namespace self_attention_test {

using test::check_gradients, test::random_tensor, test::values;

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

TEST(SelfAttention, EqualsAttention) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const bool causal : {false, true})
      for (const int64_t length : {5, 130}) test::expect_self_attention_equals_attention(dtype, causal, length);
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

}  // namespace self_attention_test
}  // namespace godwit
