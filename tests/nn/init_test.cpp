#include "autograd/leaf.h"
#include "nn/init.h"

#include <gtest/gtest.h>

#include "engine/context.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "models/resnet.h"
#include "nn/weights.h"
#include "tests/support.h"

namespace godwit::nn {
namespace init_test {

template <class Make>
void expect_deferred_values(const Make& make) {
  const auto usual = make();
  const int64_t before = context().pool->stats().bytes_in_use;
  const DeferParameters defer;
  const auto deferred = make();
  const std::vector<Parameter> expected = usual->parameters(), all = deferred->parameters();
  ASSERT_EQ(all.size(), expected.size());
  int64_t bytes = 0;  // bytes of buffers
  for (const NamedTensor& buffer : deferred->buffers()) bytes += buffer.tensor.bytes();
  EXPECT_EQ(context().pool->stats().bytes_in_use, before + bytes) << "parameters have no memory";
  for (size_t i = 0; i < all.size(); ++i) {
    const Var& var = all[i].var;
    ASSERT_TRUE(Leaf(var).is_deferred()) << all[i].name;
    const Tensor whole = expected[i].var.value().view({expected[i].var.shape().numel()});
    const int64_t begin = whole.numel() / 3, count = whole.numel() / 2;  // begins and ends within rows
    const Tensor part({count});
    Leaf(var).read(part, begin);
    EXPECT_EQ(part.to_vector<float>(), whole.range(begin, count).to_vector<float>()) << all[i].name;
    EXPECT_EQ(var.value().to_vector<float>(), whole.to_vector<float>()) << all[i].name;
    EXPECT_FALSE(Leaf(var).is_deferred());
  }
}

// Any part of a deferred parameter has the values of the same seed without deferring.
TEST(DeferParameters, InitializersComputeAnyPart) {
  expect_deferred_values(
      [] { return make_gpt2({.vocab_size = 50, .n_positions = 8, .n_embd = 12, .n_layer = 2, .n_head = 2}); });
  expect_deferred_values([] { return make_resnet(resnet_config("resnet20")); });
  BertConfig bert = bert_config("bert_tiny");
  bert.vocab_size = 50, bert.pad_token_id = 20;  // a row of zeros
  expect_deferred_values([&] { return make_bert<BertForMaskedLM>(bert); });
}

TEST(DeferParameters, MayBeNested) {
  const auto defers = [] { return Leaf(Linear(2, 3).weight()).is_deferred(); };
  {
    const DeferParameters outer;
    {
      const DeferParameters inner(false);
      EXPECT_TRUE(defers()) << "false has no effect";
    }
    EXPECT_TRUE(defers());
  }
  EXPECT_FALSE(defers());
}

TEST(DeferParameters, FilesAreReadWhenValuesAreNeeded) {
  const TempFolder folder;
  ResNetConfig config = resnet_config("resnet20");
  const auto saved = make_resnet(config);
  save_weights(folder / "x.safetensors", *saved);
  config.seed = 5;
  expect_deferred_values([&] {
    auto net = make_resnet(config);
    load_weights(folder / "x.safetensors", *net);
    return net;
  });
}

}  // namespace init_test
}  // namespace godwit::nn
