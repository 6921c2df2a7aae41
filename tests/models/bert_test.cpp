#include "models/bert.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "engine/context.h"
#include "tests/models/golden.h"
#include "tests/support.h"

namespace godwit {
namespace bert_test {

using ::testing::HasSubstr;

BertConfig small(DType dtype = DType::f32) {
  BertConfig c = bert_config("bert_tiny");
  c.vocab_size = 50;
  c.hidden_size = 16;
  c.num_attention_heads = 2;
  c.intermediate_size = 24;
  c.max_position_embeddings = 12;
  c.initializer_range = 0.2;
  c.dtype = dtype;
  return c;
}

Tensor integers(std::vector<int32_t> values, Shape shape) { return Tensor::of(values, shape); }

// Two texts of 4 and 3 tokens, padded to `length` with the id `filler`.
TextInput texts(int64_t length = 5, int32_t filler = 0) {
  TextInput input{Tensor({2, length}, DType::i32), Tensor::zeros({2, length}, DType::i32),
                  Tensor::zeros({2, length}, DType::u8)};
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t i = 0; i < length; ++i) {
      const bool token = i < 4 - row;
      input.ids.data<int32_t>()[row * length + i] = token ? static_cast<int32_t>(7 * row + 3 * i + 1) : filler;
      input.token_type_ids.data<int32_t>()[row * length + i] = token && i > 1;
      input.mask.data<uint8_t>()[row * length + i] = token;
    }
  return input;
}

int64_t parameter_count(const std::string& name) {
  int64_t count = 0;
  for (const Parameter& p : Bert(bert_config(name)).parameters()) count += p.var.value().numel();
  return count;
}

TEST(BertModel, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameter_count("bert_tiny"), 4385920);
  EXPECT_EQ(parameter_count("bert_mini"), 11170560);
  EXPECT_EQ(parameter_count("bert_small"), 28763648);
}

TEST(BertModel, PaddingHasNoEffect) {
  const auto model = make_bert<BertForSequenceClassification>(small());
  NoGrad off;
  const Tensor hidden = model->bert().forward(texts()).value(), logits = model->forward(texts()).value();
  for (const int64_t length : {4, 8, 12}) {
    const TextInput longer = texts(length, /*filler=*/9);
    const Tensor other = model->bert().forward(longer).value();
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t i = 0; i < (4 - row) * 16; ++i)
        ASSERT_NEAR(other.item(row * length * 16 + i), hidden.item(row * 5 * 16 + i), 1e-5) << length;
    const Tensor same = model->forward(longer).value();
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(same.item(i), logits.item(i), 1e-5);
  }
}

TEST(BertModel, TypesAndMaskAreOptional) {
  const auto model = make_bert<Bert>(small());
  NoGrad off;
  TextInput all = texts(), bare{all.ids, {}, {}};
  all.token_type_ids.zero();
  all.mask.fill(1);
  EXPECT_EQ(model->forward(all).value().to_vector<float>(), model->forward(bare).value().to_vector<float>());
}

TEST(BertModel, DropoutDependsOnTheContext) {
  const auto model = make_bert<BertForSequenceClassification>(small());
  NoGrad off;
  const auto logits = [&](const DropoutContext* run) {
    return model->forward(texts(), run).value().to_vector<float>();
  };
  std::set<std::vector<float>> seen{logits(nullptr)};
  for (const DropoutContext& run :
       {DropoutContext{1, 0, 0}, DropoutContext{2, 0, 0}, DropoutContext{1, 1, 0}, DropoutContext{1, 0, 1}}) {
    EXPECT_EQ(logits(&run), logits(&run));
    EXPECT_TRUE(seen.insert(logits(&run)).second) << "equal to another context, or to no dropout";
  }
}

// Each of the three settings applies dropout independently; with all at 0 there is none.
TEST(BertModel, EachDropoutSettingHasAnEffect) {
  const DropoutContext run{1, 0, 0};
  const auto changes = [&](double hidden, double attention, std::optional<double> classifier) {
    BertConfig c = small();
    c.hidden_dropout_prob = hidden;
    c.attention_probs_dropout_prob = attention;
    c.classifier_dropout = classifier;
    const auto model = make_bert<BertForSequenceClassification>(c);
    NoGrad off;
    const auto with = model->forward(texts(), &run).value(), without = model->forward(texts()).value();
    return with.to_vector<float>() != without.to_vector<float>();
  };
  EXPECT_FALSE(changes(0, 0, std::nullopt));
  EXPECT_TRUE(changes(0.5, 0, 0.0));
  EXPECT_TRUE(changes(0, 0.5, std::nullopt));
  EXPECT_TRUE(changes(0, 0, 0.5));
}

TEST(BertModel, InitialValues) {
  BertConfig c = small();
  c.vocab_size = 1000;
  c.pad_token_id = 2;
  c.initializer_range = 0.02;
  const auto model = make_bert<BertForPreTraining>(c), again = make_bert<BertForPreTraining>(c);
  for (const Parameter& p : model->parameters()) {
    const Tensor value = p.var.value();
    EXPECT_EQ(p.decay, value.shape().rank() > 1) << p.name;
    if (value.shape().rank() == 1) {
      const double expected = p.name.ends_with("weight") ? 1 : 0;
      for (int64_t i = 0; i < value.numel(); ++i) ASSERT_EQ(value.item(i), expected) << p.name;
      continue;
    }
    double squares = 0, neighbors = 0;
    for (int64_t i = 0; i < value.numel(); ++i) squares += std::pow(value.item(i), 2);
    for (int64_t i = 1; i < value.numel(); ++i) neighbors += value.item(i) * value.item(i - 1);
    const auto n = static_cast<double>(value.numel());  // the relative standard error of the deviation is 1/√(2n)
    EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.02 * 4.5 / std::sqrt(2 * n)) << p.name;
    EXPECT_NEAR(neighbors / squares, 0, 4.5 / std::sqrt(n)) << p.name;
    if (p.name == "bert.embeddings.word_embeddings.weight") {
      for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(value.item(2 * 16 + i), 0);
      EXPECT_NE(value.item(16), 0);
    }
  }
  EXPECT_EQ(Buckets(model->parameters(), {}).value_hash(), Buckets(again->parameters(), {}).value_hash());
}

// The decoder shares the word embeddings. Its gradient is added to theirs, including the row of the padding token.
TEST(BertModel, DecoderAndEmbeddingsShareOneParameter) {
  const auto model = make_bert<BertForMaskedLM>(small());
  for (const Parameter& p : model->parameters()) EXPECT_EQ(p.name.find("decoder"), std::string::npos) << p.name;
  const Var logits = model->forward(texts(), integers({1, 6}, {2}));
  ASSERT_EQ(logits.shape(), (Shape{2, 50}));
  backward(Var::result(Tensor::full({}, 1), {logits}, [d = logits.gradient()](const Tensor&) {
    d.add(Tensor::full({2, 50}, 1));
  }));
  const Tensor grad = model->bert().word_embeddings().grad();
  for (const int64_t word : {0, 30}) {  // padding, and a word that does not occur in the texts
    double sum = 0;
    for (int64_t i = 0; i < 16; ++i) sum += std::abs(grad.item(word * 16 + i));
    EXPECT_GT(sum, 0.1) << word;
  }
}

TEST(BertModel, PaddingGetsNoGradientFromTheInput) {
  const auto model = make_bert<BertForQuestionAnswering>(small());
  backward(question_answering_loss(model->forward(texts()), integers({1, 2}, {2}), integers({3, 2}, {2})));
  const Tensor grad = model->bert().word_embeddings().grad();
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(grad.item(i), 0);
  EXPECT_NE(grad.item(16), 0);
}

TEST(BertModel, ResultsHaveTheExpectedTypes) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const DType wide = compute_dtype(dtype);
    const auto model = make_bert<BertForPreTraining>(small(dtype));
    for (const Parameter& p : model->parameters()) EXPECT_EQ(p.var.dtype(), wide) << p.name;
    NoGrad off;
    EXPECT_EQ(model->bert().forward(texts()).dtype(), dtype);
    const auto out = model->forward(texts(), integers({3}, {1}));
    EXPECT_EQ(out.prediction_logits.dtype(), wide);
    EXPECT_EQ(out.prediction_logits.shape(), (Shape{1, 50}));
    EXPECT_EQ(out.next_sentence_logits.dtype(), wide);
    EXPECT_EQ(out.next_sentence_logits.shape(), (Shape{2, 2}));
    EXPECT_EQ(make_bert<BertForQuestionAnswering>(small(dtype))->forward(texts()).dtype(), wide);
    EXPECT_EQ(make_bert<BertForSequenceClassification>(small(dtype))->forward(texts()).dtype(), wide);
  }
}

TEST(BertModel, NamesMalformedInputs) {
  const auto model = make_bert<BertForMaskedLM>(small());
  const auto error = [&](const std::function<void(TextInput&)>& change, Tensor positions = integers({0}, {1})) {
    TextInput input = texts();
    change(input);
    return error_of([&] { model->forward(input, positions); });
  };
  const auto none = [](TextInput&) {};
  EXPECT_THAT(error([](TextInput& in) { in.ids = {}; }), HasSubstr("ids must be int32"));
  EXPECT_THAT(error([](TextInput& in) { in.ids = in.ids.view({10}); }), HasSubstr("[10]"));
  EXPECT_THAT(error([](TextInput& in) { in.ids = in.ids.to(DType::i64); }), HasSubstr("int64"));
  EXPECT_THAT(error([](TextInput& in) { in = texts(13); }), HasSubstr("13 tokens exceed max_position_embeddings 12"));
  EXPECT_THAT(error([](TextInput& in) { in.ids.data<int32_t>()[7] = 50; }),
              HasSubstr("id [1, 2] is 50, expected [0, vocab_size 50)"));
  EXPECT_THAT(error([](TextInput& in) { in.ids.data<int32_t>()[0] = -1; }), HasSubstr("id [0, 0] is -1"));
  EXPECT_THAT(error([](TextInput& in) { in.token_type_ids.data<int32_t>()[1] = 2; }), HasSubstr("type_vocab_size 2"));
  EXPECT_THAT(error([](TextInput& in) {
                in.token_type_ids = in.token_type_ids.view({5, 2});
              }),
              HasSubstr("token_type_ids must be"));
  EXPECT_THAT(error([](TextInput& in) { in.mask = in.token_type_ids; }), HasSubstr("mask must be uint8"));
  EXPECT_THAT(error(none, Tensor({0}, DType::i32)), HasSubstr("no masked position"));
  EXPECT_THAT(error(none, integers({10}, {1})), HasSubstr("10"));
  EXPECT_THAT(error_of([&] { model->bert().pool(model->bert().forward(texts()), texts()); }), HasSubstr("no pooler"));
  BertConfig bad = small();
  bad.num_attention_heads = 3;
  EXPECT_THAT(error_of([&] { Bert model_of(bad); }), HasSubstr("num_attention_heads 3"));
}

}  // namespace bert_test
}  // namespace godwit
