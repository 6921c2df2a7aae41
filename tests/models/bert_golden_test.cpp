#include "tests/models/bert_golden.h"

#include "engine/safetensors.h"
#include "models/pretrained.h"

namespace godwit {
namespace bert_golden_test {

using bert_golden::expect_golden_on;

TEST(BertGolden, PreTrainingFloat64) { expect_golden_on<BertForPreTraining>("cpu", DType::f64); }
TEST(BertGolden, PreTrainingFloat32) { expect_golden_on<BertForPreTraining>("cpu", DType::f32); }
TEST(BertGolden, MaskedLMFloat64) { expect_golden_on<BertForMaskedLM>("cpu", DType::f64); }
TEST(BertGolden, MaskedLMFloat32) { expect_golden_on<BertForMaskedLM>("cpu", DType::f32); }
TEST(BertGolden, QuestionAnsweringFloat64) { expect_golden_on<BertForQuestionAnswering>("cpu", DType::f64); }
TEST(BertGolden, QuestionAnsweringFloat32) { expect_golden_on<BertForQuestionAnswering>("cpu", DType::f32); }
TEST(BertGolden, SequenceClassificationFloat64) { expect_golden_on<BertForSequenceClassification>("cpu", DType::f64); }
TEST(BertGolden, SequenceClassificationFloat32) { expect_golden_on<BertForSequenceClassification>("cpu", DType::f32); }

TEST(BertGolden, Bfloat16StaysNearFloat64) { bert_golden::on_rank("cpu", bert_golden::expect_bfloat16_near_float64); }

// Hidden states of a real network. GODWIT_BERT_FOLDER names a folder with its weights, GODWIT_BERT_HIDDEN the file that
// `make_bert_golden.py FOLDER FILE` computed with transformers.
TEST(BertGolden, HiddenStatesOfAFolder) {
  const char *folder = std::getenv("GODWIT_BERT_FOLDER"), *file = std::getenv("GODWIT_BERT_HIDDEN");
  if (!folder || !file) GTEST_SKIP() << "GODWIT_BERT_FOLDER and GODWIT_BERT_HIDDEN are not set";
  const Bert model(read_bert_config(folder));
  const LoadReport report = load_pretrained(folder, model);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty()) << report.str();
  const auto expected = load_safetensors(file);
  const TextInput input{expected.at("ids"), expected.at("types"), expected.at("mask")};
  NoGrad off;
  const Var hidden = model.forward(input), pooled = model.pool(hidden, input);
  double most = 0;
  const int64_t width = model.config().hidden_size;
  for (int64_t i = 0; i < hidden.value().numel(); ++i)
    if (input.mask.item(i / width) > 0)
      most = std::max(most, std::abs(hidden.value().item(i) - expected.at("hidden").item(i)));
  EXPECT_LE(most, 1e-5) << "largest difference in the hidden states";
  std::printf("largest difference of a hidden state %.3g\n", most);
  for (int64_t i = 0; i < pooled.value().numel(); ++i)
    ASSERT_NEAR(pooled.value().item(i), expected.at("pooled").item(i), 1e-5) << i;
}

}  // namespace bert_golden_test
}  // namespace godwit
