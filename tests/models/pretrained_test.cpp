#include "models/pretrained.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/safetensors.h"
#include "models/weights_folder.h"
#include "tests/models/golden.h"
#include "tests/support.h"

namespace godwit {
namespace pretrained_test {

using test::expect_formula, test::expect_same_bits;
using ::testing::AllOf, ::testing::HasSubstr;

const std::string kFolder = GODWIT_SOURCE_DIR "/tests/models/golden/bert";  // a BertForPreTraining of transformers

class Pretrained : public ::testing::Test {
 protected:
  const BertConfig config_ = read_bert_config(kFolder);
  std::map<std::string, Tensor> file_ = load_safetensors(kFolder + "/model.safetensors");
  TempFolder folder_;

  std::string saved() const {
    const std::string path = folder_ / "x.safetensors";
    save_safetensors(path, {file_.begin(), file_.end()});
    return path;
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = file_.extract(from);
    ASSERT_TRUE(node) << from;
    node.key() = to;
    file_.insert(std::move(node));
  }
  // The error message for the current content of file_; checks that the model did not change.
  std::string error() const {
    const std::string path = saved();
    const BertForPreTraining model(config_);
    test::fill_by_formula(model);
    for (const Parameter& p : model.parameters()) p.var.value().data<float>()[0] = 42;
    const std::string text = error_of([&] { load_pretrained(path, model); });
    EXPECT_THAT(text, HasSubstr(path));
    for (const Parameter& p : model.parameters()) EXPECT_EQ(p.var.value().item(), 42) << p.name << " was modified";
    return text;
  }
};

TEST_F(Pretrained, LoadsAFileOfTransformers) {
  const BertForPreTraining model(config_);
  const LoadReport report = load_pretrained(kFolder, model);
  expect_formula(model);
  EXPECT_EQ(report.loaded, std::ssize(model.parameters()));
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_EQ(report.str(), std::to_string(report.loaded) + " tensors loaded");
}

TEST_F(Pretrained, NamesATensorWithAValueThatIsNotFinite) {
  const std::string name = "bert.pooler.dense.bias";
  file_[name] = file_[name].clone();
  file_[name].range(0, 1).fill(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(error_of([&] { load_pretrained(saved(), BertForPreTraining(config_)); }),
            saved() + ": " + name + " has a value that is infinite or NaN");
}

TEST_F(Pretrained, OtherHeadsLoadTheBodyAndReportTheRest) {
  const BertForQuestionAnswering model(config_);
  const LoadReport report = load_pretrained(kFolder + "/model.safetensors", model);
  expect_formula(model, "", "qa_outputs");
  EXPECT_EQ(report.missing, (std::vector<std::string>{"qa_outputs.weight", "qa_outputs.bias"}));
  EXPECT_EQ(report.unexpected.size(), 9u);
  EXPECT_THAT(report.unexpected, ::testing::Contains("pooler.dense.weight"));
  EXPECT_THAT(report.str(), AllOf(HasSubstr("2 missing"), HasSubstr("9 unexpected, ignored"), HasSubstr("…)")));

  const Bert body(config_);  // its parameter names have no "bert." prefix
  EXPECT_EQ(load_pretrained(kFolder, body).missing.size(), 0u);
  expect_formula(body, "bert.");
}

TEST_F(Pretrained, AcceptsNamesOfOtherVersionsAndOtherTypes) {
  rename("bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma");
  rename("bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.beta");
  rename("bert.pooler.dense.bias", "pooler.dense.bias");
  rename("cls.predictions.bias", "cls.predictions.decoder.bias");
  file_["cls.predictions.decoder.weight"] = file_["bert.embeddings.word_embeddings.weight"];
  file_["bert.embeddings.position_ids"] = Tensor::zeros({1, 6}, DType::i64);
  Tensor& wide = file_["bert.embeddings.LayerNorm.gamma"];
  wide = wide.to(DType::f64);
  const BertForPreTraining model(config_);
  const LoadReport report = load_pretrained(saved(), model);
  expect_formula(model);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty()) << report.str();

  for (const DType half : {DType::f16, DType::bf16}) {
    auto narrow = file_;
    for (auto& [name, tensor] : narrow)
      if (tensor.dtype() == DType::f32) tensor = tensor.to(half);
    save_safetensors(folder_ / "half", {narrow.begin(), narrow.end()});
    const BertForPreTraining rounded(config_);
    load_pretrained(folder_ / "half", rounded);
    for (const Parameter& p : rounded.parameters()) {
      const Tensor exact(p.var.shape());
      test::fill_by_formula(p.name, exact);
      if (p.name != "bert.embeddings.LayerNorm.weight")
        expect_same_bits(p.var.value(), exact.to(half).to(DType::f32), p.name);
    }
  }
}

TEST_F(Pretrained, CountsClassifierOutputs) {
  EXPECT_EQ(classifier_outputs(kFolder), std::nullopt);
  BertConfig config = config_;
  config.labels = {"a", "b", "c"};
  save_pretrained(folder_.str(), BertForSequenceClassification(config));
  EXPECT_EQ(classifier_outputs(folder_.str()), 3);
  EXPECT_EQ(classifier_outputs(folder_ / "model.safetensors"), 3);
}

TEST_F(Pretrained, WritesToParametersBoundToBuckets) {
  const BertForPreTraining model(config_), other(config_);
  test::fill_by_formula(other);
  const Buckets buckets(model.parameters(), {}), expected(other.parameters(), {});
  load_pretrained(kFolder, model);
  EXPECT_EQ(buckets.value_hash(), expected.value_hash());
}

TEST_F(Pretrained, SavesTheFilesThatTransformersWouldSave) {
  const BertForPreTraining model(config_);
  test::fill_by_formula(model);
  const std::string folder = folder_ / "a/new/folder";
  save_pretrained(folder, model);
  const auto ours = load_safetensors(folder + "/model.safetensors");
  ASSERT_EQ(ours.size(), file_.size());
  for (const auto& [name, tensor] : file_) {
    ASSERT_TRUE(ours.contains(name)) << name;
    expect_same_bits(ours.at(name), tensor, name);
  }
  std::ifstream mine(folder + "/config.json"), theirs(kFolder + "/config.json");
  const auto written = nlohmann::json::parse(mine), golden = nlohmann::json::parse(theirs);
  for (const char* field : {"architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "max_position_embeddings", "type_vocab_size", "hidden_act",
                            "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout",
                            "pad_token_id", "initializer_range", "layer_norm_eps", "model_type"})
    EXPECT_EQ(written.at(field), golden.at(field)) << field;
  const auto loaded = std::make_unique<BertForPreTraining>(read_bert_config(folder));
  load_pretrained(folder, *loaded);
  expect_formula(*loaded);
}

// HuggingFace's question-answering network has one output per label of its configuration.
TEST_F(Pretrained, QuestionAnsweringIsSavedWithTwoLabels) {
  BertConfig config = config_;
  config.labels = {"a", "b", "c"};
  save_pretrained(folder_.str(), BertForQuestionAnswering(config));
  EXPECT_EQ(read_bert_config(folder_.str()).labels.size(), 2u);
  save_pretrained(folder_.str(), BertForSequenceClassification(config));
  EXPECT_EQ(read_bert_config(folder_.str()).labels, config.labels);
}

TEST_F(Pretrained, NamesTheFieldThatDoesNotFit) {
  file_["bert.embeddings.word_embeddings.weight"] = Tensor::zeros({13, 8});
  file_["bert.encoder.layer.0.intermediate.dense.bias"] = Tensor::zeros({16});
  file_["bert.encoder.layer.0.output.dense.weight"] = Tensor::zeros({8, 16});
  file_["bert.encoder.layer.0.attention.output.dense.weight"] = Tensor::zeros({8, 9});
  EXPECT_THAT(error(),
              AllOf(HasSubstr("bert.embeddings.word_embeddings.weight is [13, 8], the model expects [11, 8] by "
                              "vocab_size 11 of config.json"),
                    HasSubstr("intermediate.dense.bias is [16], the model expects [12] by intermediate_size 12"),
                    HasSubstr("layer.0.output.dense.weight is [8, 16], the model expects [8, 12] by intermediate_size"),
                    HasSubstr("attention.output.dense.weight is [8, 9], the model expects [8, 8] by hidden_size 8"),
                    HasSubstr("4 of another shape or type")));
}

TEST(WeightsFolder, NamesAFieldOnlyIfOneDeterminesTheExtent) {
  const auto fixed = [](std::string_view, int dimension) { return dimension == 0 ? "" : "hidden_size"; };
  EXPECT_EQ(difference("head", Tensor::zeros({3, 8}), {2, 8}, fixed), "head is [3, 8], the model expects [2, 8]");
  EXPECT_EQ(difference("head", Tensor::zeros({2, 9}), {2, 8}, fixed),
            "head is [2, 9], the model expects [2, 8] by hidden_size 8 of config.json");
}

TEST_F(Pretrained, AnIncompleteBodyIsAnError) {
  file_.erase("bert.encoder.layer.0.output.dense.bias");
  file_["bert.encoder.layer.1.output.dense.bias"] = Tensor::zeros({8});
  file_["bert.embeddings.LayerNorm.bias"] = Tensor::zeros({8}, DType::i32);
  EXPECT_THAT(error(), AllOf(HasSubstr("1 missing (bert.encoder.layer.0.output.dense.bias)"),
                             HasSubstr("1 unexpected (encoder.layer.1.output.dense.bias)"),
                             HasSubstr("num_hidden_layers"), HasSubstr("LayerNorm.bias is int32")));
  file_.clear();
  EXPECT_THAT(error(), HasSubstr("missing"));
}

TEST_F(Pretrained, AnUntiedDecoderIsAnError) {
  Tensor decoder = file_["bert.embeddings.word_embeddings.weight"].clone();
  file_["cls.predictions.decoder.weight"] = decoder;
  decoder.data<float>()[5] += 1;
  EXPECT_THAT(error(), AllOf(HasSubstr("cls.predictions.decoder.weight differs"), HasSubstr("tie_word_embeddings")));
  const BertForQuestionAnswering model(config_);
  EXPECT_EQ(load_pretrained(saved(), model).unexpected.size(), 10u) << "a model without a decoder ignores it";
  decoder.data<float>()[5] -= 1;
  file_["cls.predictions.decoder.bias"] = Tensor::full({11}, 9);
  EXPECT_THAT(error(), HasSubstr("cls.predictions.decoder.bias differs"));
}

TEST_F(Pretrained, TwoTensorsForOneNameAreAnError) {
  file_["pooler.dense.bias"] = file_["bert.pooler.dense.bias"];
  EXPECT_THAT(error(), HasSubstr("pooler.dense.bias under two names"));
}

// A model in several files with HuggingFace's index.
TEST_F(Pretrained, ReadsAShardedModel) {
  std::map<std::string, std::vector<std::pair<std::string, Tensor>>> files;
  nlohmann::json index;
  for (const auto& [name, tensor] : file_) {
    const std::string file = name.size() % 2 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    files[file].emplace_back(name, tensor);
    index["weight_map"][name] = file;
  }
  for (const auto& [file, tensors] : files) save_safetensors(folder_ / file, tensors);
  const auto write_index = [&](const nlohmann::json& value) {
    const std::string text = value.dump();
    write(folder_ / "model.safetensors.index.json", {text.begin(), text.end()});
  };
  write_index(index);
  const BertForPreTraining model(config_);
  EXPECT_EQ(load_pretrained(folder_.str(), model).loaded, std::ssize(file_));
  expect_formula(model);

  nlohmann::json other = index;
  other["weight_map"]["extra"] = "model-00001-of-00002.safetensors";
  write_index(other);
  EXPECT_THAT(error_of([&] { load_pretrained(folder_.str(), model); }),
              HasSubstr("model-00001-of-00002.safetensors: tensor extra is missing, but"));
  other = index;
  other["weight_map"].erase(other["weight_map"].begin());
  write_index(other);
  EXPECT_THAT(error_of([&] { load_pretrained(folder_.str(), model); }),
              HasSubstr("does not list for this file"));
  for (const char* bad : {"../x.safetensors", "x.bin", ""}) {
    other = index;
    other["weight_map"].begin().value() = bad;
    write_index(other);
    EXPECT_THAT(error_of([&] { load_pretrained(folder_.str(), model); }),
                HasSubstr("is not the name of a safetensors file in this folder"));
  }
}

TEST_F(Pretrained, NamesFoldersWithoutWeights) {
  const BertForPreTraining model(config_);
  EXPECT_THAT(error_of([&] { load_pretrained(folder_.str(), model); }), HasSubstr("has no model.safetensors"));
  write(folder_ / "pytorch_model.bin", {1});
  EXPECT_THAT(error_of([&] { load_pretrained(folder_.str(), model); }),
              AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("model and tokenizer")));
  EXPECT_THAT(error_of([&] { load_pretrained(folder_ / "none", model); }), HasSubstr("No such file"));
  write(folder_ / "file", {1});
  EXPECT_THAT(error_of([&] { save_pretrained(folder_ / "file/x", model); }), HasSubstr("cannot be created"));
}

}  // namespace pretrained_test
}  // namespace godwit
