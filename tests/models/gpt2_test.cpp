#include "models/gpt2.h"

#include <gmock/gmock.h>

#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/context.h"
#include "engine/safetensors.h"
#include "tests/autograd/gradient_check.h"
#include "tests/models/golden.h"
#include "tests/support.h"

namespace godwit {
namespace gpt2_test {

using test::expect_formula;
using ::testing::AllOf, ::testing::HasSubstr;

const std::string kFolder = std::string(GODWIT_SOURCE_DIR) + "/tests/models/golden/gpt2";

Gpt2Config small() {
  Gpt2Config config;
  config.vocab_size = 11, config.n_positions = 6, config.n_embd = 8, config.n_layer = 2, config.n_head = 2;
  return config;
}

TEST(Gpt2, PublishedSizes) {
  const auto parameters = [](const Gpt2Config& c) {
    const int64_t layer = 12 * c.n_embd * c.n_embd + 13 * c.n_embd;
    return (c.vocab_size + c.n_positions + 2) * c.n_embd + c.n_layer * layer;
  };
  int64_t counted = 0;
  const Gpt2 model(small());
  for (const Parameter& p : model.parameters()) counted += p.var.shape().numel();
  EXPECT_EQ(parameters(small()), counted);
  // Parameters of transformers' models: 124.4, 354.8, 774.0 and 1557.6 million.
  for (const auto& [name, count] : {std::pair<std::string, int64_t>{"gpt2", 124439808},
                                    {"gpt2_medium", 354823168},
                                    {"gpt2_large", 774030080},
                                    {"gpt2_xl", 1557611200}})
    EXPECT_EQ(parameters(gpt2_config(name)), count) << name;
  EXPECT_THAT(error_of([] { gpt2_config("gpt2_midium"); }), HasSubstr("did you mean 'gpt2_medium'"));
}

TEST(Gpt2, InitialWeights) {
  Gpt2Config config = gpt2_config("gpt2_nano");
  config.vocab_size = 65, config.n_positions = 64;
  const auto model = make_gpt2(config);
  for (const Parameter& p : model->parameters()) {
    const std::vector<double> x = test::values(p.var.value());
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double deviation = std::sqrt(squares / static_cast<double>(x.size()));
    if (p.var.shape().rank() == 2) {
      EXPECT_TRUE(p.decay) << p.name;
      // Four layers: residual outputs are divided by √8. At least 8,192 samples: 3 % are four standard deviations.
      const double expected = p.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(8.0) : 0.02;
      EXPECT_NEAR(deviation, expected, 0.03 * expected) << p.name;
    } else {
      EXPECT_FALSE(p.decay) << p.name;
      EXPECT_EQ(deviation, p.name.ends_with("weight") ? 1 : 0) << p.name;
    }
  }
}

Tensor ids_of(const std::vector<int32_t>& ids, int64_t batch) {
  return Tensor::of(ids, {batch, std::ssize(ids) / batch});
}

TEST(Gpt2, DropoutUsesItsKey) {
  const auto model = make_gpt2(small());
  const Tensor ids = ids_of({1, 2, 3, 4, 5, 6, 7, 8}, 2);
  const auto out = [&](std::optional<uint32_t> step) {
    const DropoutContext run{.seed = 7, .step = step.value_or(0), .rank = 0};
    return test::values(model->forward(ids, step ? &run : nullptr).value());
  };
  EXPECT_EQ(out(std::nullopt), out(std::nullopt));
  EXPECT_EQ(out(3), out(3));
  EXPECT_NE(out(3), out(4));
  EXPECT_NE(out(3), out(std::nullopt));
}

TEST(Gpt2, NamesInvalidInput) {
  const auto model = make_gpt2(small());
  const auto message = [&](const Tensor& ids) { return error_of([&] { model->forward(ids); }); };
  EXPECT_EQ(message(ids_of({1, 2, 11, 4}, 2)), "gpt2: token [1, 0] is 11, expected [0, vocab_size 11)");
  EXPECT_EQ(message(ids_of({1, -2}, 1)), "gpt2: token [0, 1] is -2, expected [0, vocab_size 11)");
  EXPECT_EQ(message(ids_of({1, 2, 3, 4, 5, 6, 7}, 1)), "gpt2: a text of 7 tokens exceeds n_positions 6");
  EXPECT_THAT(message(Tensor::zeros({2}, DType::i32)), HasSubstr("ids must be int32 [batch, length]"));
  KeyValueCache cache = model->make_cache(6);
  EXPECT_THAT(error_of([&] { model->forward(ids_of({1, 2}, 1), cache); }), HasSubstr("disable gradients"));
  const NoGrad no_grad;
  model->forward(ids_of({1, 2, 3, 4}, 1), cache);
  EXPECT_EQ(error_of([&] {
              model->forward(ids_of({1, 2, 3}, 1), cache);
            }),
            "gpt2: a text of 7 tokens exceeds n_positions 6");
  EXPECT_THAT(error_of([&] { model->make_cache(7); }), HasSubstr("a cache for 7 tokens exceeds n_positions 6"));
  KeyValueCache short_cache = model->make_cache(2);
  EXPECT_THAT(error_of([&] {
                model->forward(ids_of({1, 2, 3}, 1), short_cache);
              }),
              HasSubstr("3 tokens exceed the capacity of 2"));
}

class Gpt2Weights : public ::testing::Test {
 protected:
  TempFolder folder_;
  Gpt2Config config_ = read_gpt2_config(kFolder);
  std::map<std::string, Tensor> file_ = load_safetensors(kFolder + "/model.safetensors");

  std::string saved() {
    save_safetensors(folder_ / "model.safetensors", {file_.begin(), file_.end()});
    return folder_ / "model.safetensors";
  }
  // Loading the changed file must fail and leave the model unchanged.
  std::string error() {
    const Gpt2 model(config_);
    for (const Parameter& p : model.parameters()) p.var.value().fill(42);
    const std::string path = saved(), text = error_of([&] { load_pretrained(path, model); });
    EXPECT_THAT(text, HasSubstr(path));
    for (const Parameter& p : model.parameters()) EXPECT_EQ(p.var.value().item(), 42) << p.name << " was modified";
    return text;
  }
};

TEST_F(Gpt2Weights, LoadsAFolderOfTransformers) {
  EXPECT_EQ(config_.n_inner, 12);
  EXPECT_EQ(config_.eos_token_id, std::nullopt);
  const Gpt2 model(config_);
  load_pretrained(kFolder, model);
  expect_formula(model);
}

TEST_F(Gpt2Weights, SavesTheFilesOfTransformers) {
  const Gpt2 model(config_);
  test::fill_by_formula(model);
  save_pretrained(folder_ / "new", model);
  const auto ours = load_safetensors(folder_ / "new/model.safetensors");
  ASSERT_EQ(ours.size(), file_.size());
  for (const auto& [name, tensor] : file_) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.at(name).shape(), tensor.shape()) << name;
    EXPECT_EQ(ours.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
  }
  std::ifstream mine(folder_ / "new/config.json"), theirs(kFolder + "/config.json");
  const auto written = nlohmann::json::parse(mine), golden = nlohmann::json::parse(theirs);
  for (const auto& [field, value] : written.items()) EXPECT_EQ(golden.at(field), value) << field;
  EXPECT_EQ(hash(read_gpt2_config(folder_ / "new")), hash(config_));
}

TEST_F(Gpt2Weights, AcceptsNamesOfOtherVersionsAndOtherTypes) {
  std::map<std::string, Tensor> other;
  for (const auto& [name, tensor] : file_)
    other[name.substr(std::string("transformer.").size())] = tensor.to(DType::f64);
  other["h.0.attn.bias"] = Tensor::zeros({1, 1, 6, 6}, DType::u8);
  other["h.0.attn.masked_bias"] = Tensor::zeros({1});
  other["lm_head.weight"] = other["wte.weight"];
  file_ = other;
  const Gpt2 model(config_);
  load_pretrained(saved(), model);
  expect_formula(model);
}

TEST_F(Gpt2Weights, NamesTensorsThatDoNotFit) {
  file_["transformer.wte.weight"] = Tensor::zeros({12, 8});
  file_["transformer.h.0.mlp.c_fc.weight"] = Tensor::zeros({8, 16});
  file_["transformer.h.0.attn.c_attn.weight"] = Tensor::zeros({8, 24}, DType::i32);
  file_["transformer.h.0.attn.c_attn.bias"] = Tensor::zeros({48});
  file_.erase("transformer.ln_f.bias");
  file_["transformer.h.1.ln_1.weight"] = Tensor::zeros({8});
  EXPECT_THAT(
      error(),
      AllOf(HasSubstr("does not fit a GPT-2 of 1 layers (n_layer)"),
            HasSubstr("wte.weight is [12, 8], the model expects [11, 8] by vocab_size 11 of config.json"),
            HasSubstr("c_fc.weight is [8, 16], the model expects [8, 12] by n_inner 12"),
            HasSubstr("c_attn.weight is int32"),
            HasSubstr("c_attn.bias is [48], the model expects [24] by 3 · n_embd = 24 of config.json"),
            HasSubstr("1 missing (transformer.ln_f.bias)"), HasSubstr("1 unexpected (transformer.h.1.ln_1.weight)")));
}

TEST_F(Gpt2Weights, NamesTensorsOfAnotherModelAsInTheFile) {
  file_["model.norm.weight"] = Tensor::zeros({8});
  EXPECT_THAT(error(), HasSubstr("1 unexpected (model.norm.weight)"));
}

TEST_F(Gpt2Weights, AnUntiedHeadIsAnError) {
  file_["lm_head.weight"] = Tensor::zeros({11, 8});
  EXPECT_THAT(error(), HasSubstr("lm_head.weight differs from transformer.wte.weight"));
}

TEST_F(Gpt2Weights, NamesOtherArchitecturesAndInvalidFields) {
  const auto with = [&](const std::string& field, const nlohmann::json& value) {
    nlohmann::json object{{"model_type", "gpt2"}};
    object[field] = value;
    std::ofstream(folder_ / "config.json") << object;
    return error_of([&] { read_gpt2_config(folder_.str()); });
  };
  EXPECT_THAT(with("model_type", "bert"), AllOf(HasSubstr(folder_ / "config.json"), HasSubstr("model_type must be "),
                                                HasSubstr("\"gpt2\""), HasSubstr("got \"bert\"")));
  EXPECT_THAT(with("model_type", nullptr), HasSubstr("has no model_type, expected \"gpt2\""));
  EXPECT_THAT(with("tie_word_embeddings", false), HasSubstr("tie_word_embeddings must be true"));
  EXPECT_THAT(with("scale_attn_by_inverse_layer_idx", true), HasSubstr("must be false"));
  EXPECT_THAT(with("n_embd", 770), HasSubstr("n_embd 770 is not a multiple of n_head 12"));
  EXPECT_THAT(with("n_embd", nullptr), HasSubstr("n_embd must be an integer, got null"));
  EXPECT_THAT(with("n_layer", 0), HasSubstr("n_layer must be from 1 to 4096, got 0"));
  EXPECT_THAT(with("resid_pdrop", 1), HasSubstr("resid_pdrop must be in [0, 1), got 1"));
  EXPECT_THAT(with("activation_function", "gelu_old"), HasSubstr("'gelu_old' is not supported"));
  EXPECT_THAT(with("vocab_size", "many"), HasSubstr("vocab_size must be an integer, got \"many\""));
}

TEST(Gpt2Config, SizesHaveTwoNames) {
  const TempFolder folder;
  const auto write = [&](const char* sizes) {
    std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "n_embd": 96, )" << sizes << "}";
  };
  write(R"("num_attention_heads": 8, "num_hidden_layers": 3, "max_position_embeddings": 77, "hidden_size": 96)");
  const Gpt2Config config = read_gpt2_config(folder.str());
  EXPECT_EQ(config.n_head, 8);
  EXPECT_EQ(config.n_layer, 3);
  EXPECT_EQ(config.n_positions, 77);
  EXPECT_EQ(config.n_embd, 96);
  write(R"("hidden_size": 48)");
  EXPECT_THAT(error_of([&] { read_gpt2_config(folder.str()); }),
              HasSubstr("n_embd is 96 and hidden_size is 48, but they are two names of one size"));
}

TEST(Gpt2Config, DefaultsAreTransformers) {
  const TempFolder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2"})";
  const Gpt2Config config = read_gpt2_config(folder.str());
  EXPECT_EQ(config.eos_token_id, 50256);
  Gpt2Config expected = gpt2_config("gpt2");
  expected.bos_token_id = expected.eos_token_id = 50256;
  EXPECT_EQ(hash(config), hash(expected));
}

}  // namespace gpt2_test
}  // namespace godwit
