#include "models/bert_config.h"

#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "models/bert.h"
#include "tests/support.h"

namespace godwit {
namespace bert_config_test {

using nlohmann::json;
using ::testing::AllOf, ::testing::HasSubstr;

const std::string kFolder = GODWIT_SOURCE_DIR "/tests/models/golden/bert";  // saved by transformers

void write_text(const std::string& path, const std::string& text) { write(path, Bytes(text.begin(), text.end())); }

BertConfig read_text(const std::string& text) {
  TempFolder folder;
  write_text(folder / "config.json", text);
  return read_bert_config(folder.str());
}

std::vector<std::string> class_names(const std::string& text) {
  TempFolder folder;
  write_text(folder / "config.json", text);
  return read_class_names(folder.str());
}

// The error message for a config.json with this text; checks that it names the file.
std::string error_for(const std::string& text) {
  const std::string error = error_of([&] { read_text(text); });
  EXPECT_THAT(error, HasSubstr("config.json"));
  return error;
}

TEST(BertConfig, ReadsAFileOfTransformers) {
  for (const std::string& path : {kFolder, kFolder + "/config.json"}) {
    const BertConfig c = read_bert_config(path);
    EXPECT_EQ(c.vocab_size, 11);
    EXPECT_EQ(c.hidden_size, 8);
    EXPECT_EQ(c.num_hidden_layers, 1);
    EXPECT_EQ(c.num_attention_heads, 2);
    EXPECT_EQ(c.intermediate_size, 12);
    EXPECT_EQ(c.max_position_embeddings, 6);
    EXPECT_EQ(c.type_vocab_size, 2);
    EXPECT_EQ(c.hidden_act, "gelu_new");
    EXPECT_EQ(c.layer_norm_eps, 1e-12);
    EXPECT_EQ(c.pad_token_id, 0);
    EXPECT_EQ(c.classifier_dropout, std::nullopt);
    EXPECT_EQ(c.labels, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  }
}

TEST(BertConfig, MissingFieldsDefaultToBertBase) {
  const BertConfig c = read_text("{}");
  EXPECT_EQ(c.vocab_size, 30522);
  EXPECT_EQ(c.hidden_size, 768);
  EXPECT_EQ(c.intermediate_size, 3072);
  EXPECT_EQ(c.max_position_embeddings, 512);
  EXPECT_EQ(c.hidden_dropout_prob, 0.1);
  EXPECT_EQ(read_text(R"({"pad_token_id": null, "classifier_dropout": null})").pad_token_id, std::nullopt);
}

TEST(BertConfig, RoundTrips) {
  TempFolder folder;
  BertConfig c = bert_config("bert_mini");
  c.vocab_size = 77;
  c.hidden_act = "relu";
  c.hidden_dropout_prob = 0.25;
  c.attention_probs_dropout_prob = 0;
  c.classifier_dropout = 0.125;
  c.pad_token_id = 3;
  c.initializer_range = 0.03;
  c.layer_norm_eps = 1e-6;
  c.labels = {"no", "yes", "quote\" é"};
  write_bert_config(folder / "config.json", c, "BertForSequenceClassification");
  const BertConfig read = read_bert_config(folder.str());
  EXPECT_EQ(read.vocab_size, 77);
  EXPECT_EQ(read.hidden_size, 256);
  EXPECT_EQ(read.num_attention_heads, 4);
  EXPECT_EQ(read.num_hidden_layers, 4);
  EXPECT_EQ(read.intermediate_size, 1024);
  EXPECT_EQ(read.hidden_act, "relu");
  EXPECT_EQ(read.hidden_dropout_prob, 0.25);
  EXPECT_EQ(read.attention_probs_dropout_prob, 0);
  EXPECT_EQ(read.classifier_dropout, 0.125);
  EXPECT_EQ(read.pad_token_id, 3);
  EXPECT_EQ(read.initializer_range, 0.03);
  EXPECT_EQ(read.layer_norm_eps, 1e-6);
  EXPECT_EQ(read.labels, c.labels);
  EXPECT_EQ(hash(read), hash(c));
  std::ifstream file(folder / "config.json");
  const json object = json::parse(file);
  EXPECT_EQ(object["architectures"], json({"BertForSequenceClassification"}));
  EXPECT_EQ(object["label2id"]["yes"], 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.str()), {}), 1) << "no temporary file may remain";
  EXPECT_THAT(error_of([&] { write_bert_config(folder / "none/config.json", c, "x"); }), HasSubstr("none/config.json"));
}

// Reading and writing time must be linear in the number of labels.
TEST(BertConfig, ReadsAndWritesManyLabelsInLinearTime) {
  TempFolder folder;
  std::string text = "{\"id2label\": {";
  for (int i = 0; i < 100000; ++i)
    text += (i ? ", \"" : "\"") + std::to_string(i) + "\": \"name " + std::to_string(i) + '"';
  text += "}";
  for (int i = 0; i < 100000; ++i) text += ", \"key " + std::to_string(i) + "\": {}";
  const auto begin = std::chrono::steady_clock::now();
  const BertConfig config = read_text(text + "}");
  EXPECT_EQ(config.labels.at(99999), "name 99999");
  write_bert_config(folder / "config.json", config, "x");
  EXPECT_EQ(read_bert_config(folder.str()).labels, config.labels);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "expected 0.5 s";
}

// For duplicate labels, label2id contains the last index, at the position of the first.
TEST(BertConfig, WritesLabelsInOrder) {
  TempFolder folder;
  BertConfig config = bert_config("bert_tiny");
  config.labels = {"b", "a", "b"};
  write_bert_config(folder / "config.json", config, "x");
  const Bytes bytes = read(folder / "config.json");
  const auto object = nlohmann::ordered_json::parse(bytes);
  EXPECT_EQ(object["id2label"].dump(), R"({"0":"b","1":"a","2":"b"})");
  EXPECT_EQ(object["label2id"].dump(), R"({"b":2,"a":1})");
}

TEST(BertConfig, MessagesTruncateAndEscapeTextFromTheFile) {
  const std::string name = "\\u001b[2Jx\\n" + std::string(500000, 'y');
  for (const std::string& text : {R"({"hidden_size": ")" + name + R"("})", R"({"hidden_act": ")" + name + R"("})",
                                  R"({"model_type": ")" + name + R"("})", R"({"id2label": {")" + name + R"(": "a"}})",
                                  "{" + std::string(500000, 'z'), std::string("{\"\x1b[2J\n")}) {
    const std::string error = error_for(text);
    EXPECT_LT(error.size(), 500u);
    for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), 32) << error;
  }
}

// The hash also includes fields that do not affect parameter shapes.
TEST(BertConfig, HashDependsOnEveryFieldExceptTheSeed) {
  const BertConfig config = bert_config("bert_tiny");
  BertConfig seed = config;
  seed.seed = 77;
  EXPECT_EQ(hash(seed), hash(config));
  for (const std::function<void(BertConfig&)>& change : std::vector<std::function<void(BertConfig&)>>{
           [](BertConfig& c) { c.num_attention_heads = 1; }, [](BertConfig& c) { c.hidden_act = "relu"; },
           [](BertConfig& c) { c.layer_norm_eps = 1e-5; }, [](BertConfig& c) { c.hidden_dropout_prob = 0; },
           [](BertConfig& c) { c.attention_probs_dropout_prob = 0; }, [](BertConfig& c) { c.pad_token_id = 1; },
           [](BertConfig& c) { c.labels = {"a", "b"}; }, [](BertConfig& c) { c.dtype = DType::bf16; }}) {
    BertConfig other = config;
    change(other);
    EXPECT_NE(hash(other), hash(config));
  }
}

TEST(BertConfig, NamesTheInvalidField) {
  EXPECT_THAT(error_for(R"({"hidden_size": "768"})"), AllOf(HasSubstr("hidden_size"), HasSubstr("\"768\"")));
  EXPECT_THAT(error_for(R"({"hidden_size": 7.5})"), HasSubstr("hidden_size must be an integer, got 7.5"));
  EXPECT_THAT(error_for(R"({"hidden_size": 18446744073709551615})"), HasSubstr("hidden_size must be an integer"));
  EXPECT_THAT(error_for(R"({"hidden_size": null})"), HasSubstr("hidden_size must be an integer, got null"));
  EXPECT_THAT(error_for(R"({"hidden_size": 0})"), HasSubstr("hidden_size must be from 1 to"));
  EXPECT_THAT(error_for(R"({"vocab_size": -5})"), HasSubstr("vocab_size must be from 1 to"));
  EXPECT_THAT(error_for(R"({"num_hidden_layers": 100000000000})"), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(error_for(R"({"num_attention_heads": 7})"), HasSubstr("num_attention_heads 7"));
  EXPECT_THAT(error_for(R"({"hidden_act": "gelu_ne"})"), AllOf(HasSubstr("gelu_ne"), HasSubstr("mean 'gelu_new'")));
  EXPECT_THAT(error_for(R"({"hidden_act": "silu"})"), HasSubstr("'silu' is not supported"));
  EXPECT_THAT(error_for(R"({"hidden_act": 1})"), HasSubstr("hidden_act must be a string"));
  EXPECT_THAT(error_for(R"({"hidden_dropout_prob": 1})"), HasSubstr("hidden_dropout_prob must be in [0, 1)"));
  EXPECT_THAT(error_for(R"({"attention_probs_dropout_prob": -0.1})"), HasSubstr("attention_probs_dropout_prob"));
  EXPECT_THAT(error_for(R"({"classifier_dropout": 2})"), HasSubstr("classifier_dropout"));
  EXPECT_THAT(error_for(R"({"layer_norm_eps": 0})"), HasSubstr("layer_norm_eps"));
  EXPECT_THAT(error_for(R"({"layer_norm_eps": true})"), HasSubstr("layer_norm_eps must be a number"));
  EXPECT_THAT(error_for(R"({"initializer_range": -1})"), HasSubstr("initializer_range"));
  EXPECT_THAT(error_for(R"({"pad_token_id": 30522})"), HasSubstr("pad_token_id must be in [0, vocab_size 30522)"));
  EXPECT_THAT(error_for(R"({"id2label": {"0": "a", "2": "b"}})"), HasSubstr("id2label"));
  EXPECT_THAT(error_for(R"({"id2label": {"0": 1}})"), HasSubstr("id2label"));
  EXPECT_THAT(error_for(R"({"id2label": []})"), HasSubstr("id2label"));
  for (const char* count : {"0", "65537"})
    EXPECT_THAT(error_for(detail::concat("{\"num_labels\": ", count, "}")),
                AllOf(HasSubstr("num_labels"), HasSubstr("must be from 1 to 65536")));
  EXPECT_EQ(read_text(R"({"num_labels": 3})").labels.size(), 3u);
}

TEST(BertConfig, RefusesOtherArchitectures) {
  EXPECT_THAT(error_for(R"({"model_type": "roberta"})"), AllOf(HasSubstr("model_type"), HasSubstr("roberta")));
  EXPECT_THAT(error_for(R"({"position_embedding_type": "relative_key"})"), HasSubstr("position_embedding_type"));
  EXPECT_THAT(error_for(R"({"is_decoder": true})"), HasSubstr("is_decoder"));
  EXPECT_THAT(error_for(R"({"add_cross_attention": true})"), HasSubstr("add_cross_attention"));
}

// Only models with a decoder have weights to tie.
TEST(BertConfig, ModelsWithADecoderRefuseUntiedEmbeddings) {
  EXPECT_THAT(error_for(R"({"tie_word_embeddings": 0})"), HasSubstr("tie_word_embeddings must be true or false"));
  BertConfig config = bert_config("bert_tiny");
  config.tie_word_embeddings = false;
  TempFolder folder;
  write_bert_config(folder / "config.json", config, "x");
  const BertConfig read = read_bert_config(folder.str());
  EXPECT_FALSE(read.tie_word_embeddings);
  EXPECT_NO_THROW(BertForSequenceClassification{read});
  EXPECT_NO_THROW(BertForQuestionAnswering{read});
  const auto text = AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("false"));
  EXPECT_THAT(error_of([&] { BertForPreTraining{read}; }), text);
  EXPECT_THAT(error_of([&] { BertForMaskedLM{read}; }), text);
}

TEST(BertConfig, ReadsClassNames) {
  EXPECT_EQ(class_names(R"({"id2label": {"0": "no", "1": "yes"}, "label2id": {"yes": 1, "no": 0}, "num_labels": 2})"),
            (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(class_names(R"({"problem_type": null})"), (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(class_names(R"({"problem_type": "single_label_classification", "num_labels": 3})").size(), 3u);
}

TEST(BertConfig, RefusesContradictoryClasses) {
  const auto error = [](const std::string& text) { return error_of([&] { class_names(text); }); };
  const std::string names = R"({"id2label": {"0": "no", "1": "yes"}, )";
  EXPECT_THAT(
      error(names + R"("label2id": {"no": 1, "yes": 0}})"),
      AllOf(HasSubstr("config.json: label2id"), HasSubstr("\"no\" is 1"), HasSubstr("id2label"), HasSubstr("0")));
  EXPECT_THAT(error(names + R"("label2id": {"no": 0}})"), HasSubstr("\"yes\" is missing"));
  EXPECT_THAT(error(names + R"("label2id": {"no": 0, "yes": 1, "maybe": 2}})"), HasSubstr("\"maybe\""));
  EXPECT_THAT(error(names + R"("label2id": {"no": "0", "yes": 1}})"), HasSubstr("label2id"));
  EXPECT_THAT(error(names + R"("label2id": ["no", "yes"]})"), HasSubstr("label2id"));
  EXPECT_THAT(error(names + R"("num_labels": 3})"), AllOf(HasSubstr("num_labels"), HasSubstr("3"), HasSubstr("2")));
  EXPECT_THAT(error(R"({"id2label": {"0": "no", "1": "no"}})"), HasSubstr("\"no\" is the name of both 0 and 1"));
}

TEST(BertConfig, RefusesOtherProblemTypes) {
  for (const std::string type : {"regression", "multi_label_classification"})
    EXPECT_THAT(
        error_of([&] { class_names(R"({"problem_type": ")" + type + "\"}"); }),
        AllOf(HasSubstr("config.json: problem_type"), HasSubstr(type), HasSubstr("single_label_classification")));
  EXPECT_EQ(read_text(R"({"problem_type": "regression"})").hidden_size, 768) << "other heads ignore the field";
}

TEST(BertConfig, RefusesInvalidFiles) {
  EXPECT_THAT(error_for(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_for("{\"hidden_size\": 7"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_for("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_for(std::string(100000, '[')), HasSubstr("nested"));
  EXPECT_THAT(error_for("{\"hidden_act\": \"\xff\"}"), HasSubstr("not valid JSON"));
  TempFolder folder;
  EXPECT_THAT(error_of([&] { read_bert_config(folder.str()); }), HasSubstr("config.json: does not exist"));
  std::filesystem::create_directories(folder / "x/config.json");
  EXPECT_THAT(error_of([&] { read_bert_config(folder / "x"); }), HasSubstr("not a regular file"));
}

TEST(BertConfig, NamedSizes) {
  for (const std::string& name : bert_names()) EXPECT_NO_THROW(check_bert_config(bert_config(name))) << name;
  EXPECT_EQ(bert_names().size(), 6u);
  EXPECT_THAT(error_of([] { bert_config("bert-bsae"); }), HasSubstr("bert_base"));
}

}  // namespace bert_config_test
}  // namespace godwit
