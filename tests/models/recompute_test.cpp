#include <gmock/gmock.h>

#include "autograd/leaf.h"
#include "engine/context.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace recompute_test {

using ::testing::HasSubstr, test::values;

constexpr int64_t kLayers = 6;

Tensor tokens(const Shape& shape, int32_t limit) {
  const Tensor ids(shape, DType::i32, kCpu);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % limit);
  return ids;
}

Var gpt2_loss(const Gpt2& model, int64_t length) {
  const DropoutContext run{.seed = 7, .step = 3, .rank = 1};  // ends before backward
  return model.loss(model.forward(tokens({2, length}, 11), &run), tokens({2 * length}, 10));
}

Gpt2Config gpt2(DType dtype, int64_t recompute) {
  Gpt2Config config;
  config.vocab_size = 11, config.n_positions = 64, config.n_embd = 16, config.n_layer = kLayers, config.n_head = 2;
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0.3;
  config.dtype = dtype, config.recompute = recompute;
  return config;
}

Var llama_loss(const Llama& model, int64_t length) {
  const DropoutContext run{.seed = 7, .step = 3, .rank = 1};
  return model.training_loss(tokens({2, length}, 11), tokens({2 * length}, 10), &run);
}

LlamaConfig llama(DType dtype, int64_t recompute) {
  return {.model_type = "qwen2",
          .vocab_size = 11,
          .max_position_embeddings = 64,
          .hidden_size = 16,
          .intermediate_size = 32,
          .num_hidden_layers = kLayers,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .attention_dropout = 0.3,
          .dtype = dtype,
          .recompute = recompute};
}

Var bert_loss(const BertForQuestionAnswering& model, int64_t length) {
  const DropoutContext run{.seed = 7, .step = 3, .rank = 1};
  const Tensor mask = Tensor::full({2, length}, 1, DType::u8);
  mask.rows(1, 1).zero(), mask.data<uint8_t>()[length] = 1;
  return question_answering_loss(model.forward({tokens({2, length}, 11), Tensor(), mask}, &run), tokens({2}, 3),
                                 tokens({2}, 2));
}

BertConfig bert(DType dtype, int64_t recompute) {
  BertConfig config;
  config.vocab_size = 11, config.max_position_embeddings = 64, config.hidden_size = 16;
  config.num_hidden_layers = kLayers, config.num_attention_heads = 2, config.intermediate_size = 32;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.3;
  config.dtype = dtype, config.recompute = recompute;
  return config;
}

// The loss and all gradients of two micro-batches, and the order in which parameters are complete in the last one.
struct Results {
  std::vector<std::vector<double>> numbers;
  std::vector<std::string> order;
};

template <class F>
Results run(const nn::Module& model, const F& loss_of) {
  Results results;
  const std::vector<Parameter> parameters = model.parameters();
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    results.order.clear();
    for (const Parameter& p : parameters)
      Leaf(p.var).on_grad([&results, name = p.name] { results.order.push_back(name); });
    const Var loss = loss_of();
    backward(loss, 0.5);
    results.numbers.push_back({loss.value().item()});
  }
  for (const Parameter& p : parameters) {
    EXPECT_TRUE(p.var.has_grad()) << p.name;
    results.numbers.push_back(values(p.var.grad()));
  }
  return results;
}

template <class Make, class F>
void expect_equal_bits(const Make& make, const F& loss_of) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto with = [&](int64_t layers) {
      const auto model = make(dtype, layers);
      return run(*model, [&] { return loss_of(*model, 5); });
    };
    const Results expected = with(0);
    for (const int64_t layers : {int64_t{1}, kLayers}) {
      const Results found = with(layers);
      EXPECT_EQ(found.numbers, expected.numbers) << dtype << ", " << layers << " layers";
      EXPECT_EQ(found.order, expected.order) << dtype << ", " << layers << " layers";
    }
  }
}

// Peak bytes of forward and backward beyond the gradients.
template <class Make, class F>
int64_t peak_of(const Make& make, const F& loss_of, int64_t layers) {
  const auto model = make(DType::f32, layers);
  backward(loss_of(*model, 64));  // allocates the gradients
  Pool& pool = *context().pool;
  pool.reset_peak();
  const int64_t before = pool.stats().bytes_in_use;
  backward(loss_of(*model, 64));
  return pool.stats().peak_bytes_in_use - before;
}

template <class Make, class F>
void expect_less_memory(const Make& make, const F& loss_of) {
  const int64_t none = peak_of(make, loss_of, 0), one = peak_of(make, loss_of, 1);
  const int64_t all = peak_of(make, loss_of, kLayers);
  EXPECT_LT(one, none);
  EXPECT_LT(all, none / 2);
}

const auto make_small_gpt2 = [](DType dtype, int64_t layers) { return make_gpt2(gpt2(dtype, layers)); };
const auto make_small_llama = [](DType dtype, int64_t layers) { return make_llama(llama(dtype, layers)); };
const auto make_small_bert = [](DType dtype, int64_t layers) {
  return make_bert<BertForQuestionAnswering>(bert(dtype, layers));
};

TEST(Recompute, Gpt2HasTheSameBits) { expect_equal_bits(make_small_gpt2, gpt2_loss); }
TEST(Recompute, LlamaHasTheSameBits) { expect_equal_bits(make_small_llama, llama_loss); }
TEST(Recompute, BertHasTheSameBits) { expect_equal_bits(make_small_bert, bert_loss); }
TEST(Recompute, Gpt2NeedsLessMemory) { expect_less_memory(make_small_gpt2, gpt2_loss); }
TEST(Recompute, LlamaNeedsLessMemory) { expect_less_memory(make_small_llama, llama_loss); }
TEST(Recompute, BertNeedsLessMemory) { expect_less_memory(make_small_bert, bert_loss); }

TEST(Recompute, NamesANumberOfLayersThatIsTooLarge) {
  EXPECT_THAT(error_of([] { make_gpt2(gpt2(DType::f32, kLayers + 1)); }), HasSubstr("from 0 to n_layer 6, got 7"));
  EXPECT_THAT(error_of([] { make_small_llama(DType::f32, kLayers + 1); }),
              HasSubstr("from 0 to num_hidden_layers 6, got 7"));
  EXPECT_THAT(error_of([] { make_small_bert(DType::f32, -1); }), HasSubstr("from 0 to num_hidden_layers 6, got -1"));
}

TEST(Recompute, RefusesMixturesOfExperts) {
  LlamaConfig config = llama(DType::f32, 1);
  config.model_type = "mixtral", config.num_local_experts = 2;
  EXPECT_THAT(error_of([&] { make_llama(config); }), HasSubstr("layers with experts cannot be recomputed"));
}

}  // namespace recompute_test
}  // namespace godwit
