#include "autograd/leaf.h"
#include "models/llama.h"

#include <gmock/gmock.h>

#include <map>

#include "engine/context.h"
#include "engine/safetensors.h"
#include "models/make_causal_lm.h"
#include "tests/autograd/gradient_check.h"
#include "tests/models/golden.h"
#include "tests/support.h"

namespace godwit {
namespace llama_test {

using test::expect_formula;
using nlohmann::json;
using ::testing::AllOf, ::testing::HasSubstr;

std::string folder_of(const std::string& name) { return test::golden_path(name); }

LlamaConfig small() {
  return {.vocab_size = 11,
          .max_position_embeddings = 6,
          .hidden_size = 8,
          .intermediate_size = 6,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .num_key_value_heads = 1};
}

Tensor ids_of(const std::vector<int32_t>& ids, int64_t batch) {
  return Tensor::of(ids, {batch, std::ssize(ids) / batch});
}

TEST(Llama, PublishedSizes) {
  const auto parameters = [](const LlamaConfig& c) {
    const int64_t width = c.hidden_size, heads = c.num_attention_heads * c.head_width();
    const int64_t keys = c.kv_heads() * c.head_width(), biases = c.model_type == "qwen2" ? heads + 2 * keys : 0;
    const int64_t feed_forward = 3 * width * c.intermediate_size;
    const int64_t mlp = c.has_experts() ? c.num_local_experts * (feed_forward + width) : feed_forward;
    const int64_t layer = 2 * width * (heads + keys) + biases + mlp + 2 * width;
    return c.num_hidden_layers * layer + width + (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * width;
  };
  int64_t counted = 0;
  const Llama model(small());
  for (const Parameter& p : model.parameters()) counted += p.var.shape().numel();
  EXPECT_EQ(parameters(small()), counted);
  // Parameters of the published models.
  for (const auto& [name, count] : {std::pair<std::string, int64_t>{"llama3_1b", 1235814400},
                                    {"llama3_8b", 8030261248},
                                    {"mistral_7b", 7241732096},
                                    {"qwen2_0_5b", 494032768},
                                    {"mixtral_8x7b", 46702792704}})
    EXPECT_EQ(parameters(llama_config(name)), count) << name;
  EXPECT_THAT(error_of([] { causal_lm_config("llama_nan"); }), HasSubstr("did you mean 'llama_nano'"));
  for (const std::string& name : llama_names()) EXPECT_NO_THROW(check_llama_config(llama_config(name))) << name;
}

TEST(Llama, InitialWeights) {
  LlamaConfig config = llama_config("llama_nano");
  config.vocab_size = 65;
  const auto model = make_llama(config);
  for (const Parameter& p : model->parameters()) {
    const std::vector<double> x = test::values(p.var.value());
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double deviation = std::sqrt(squares / static_cast<double>(x.size()));
    EXPECT_EQ(p.decay, p.var.shape().rank() == 2) << p.name;
    // Four layers: residual outputs are divided by √8. At least 8,192 samples: 3 % are four standard deviations.
    const bool residual = p.name.ends_with("o_proj.weight") || p.name.ends_with("down_proj.weight");
    const double expected = p.var.shape().rank() == 1 ? 1 : residual ? 0.02 / std::sqrt(8.0) : 0.02;
    EXPECT_NEAR(deviation, expected, 0.03 * expected) << p.name;
  }
}

TEST(Llama, DropoutUsesItsKey) {
  LlamaConfig config = small();
  config.attention_dropout = 0.5;
  const auto model = make_llama(config);
  const Tensor ids = ids_of({1, 2, 3, 4, 5, 6, 7, 8}, 2);
  const auto out = [&](std::optional<uint32_t> step) {
    const DropoutContext run{.seed = 7, .step = step.value_or(0), .rank = 0};
    return test::values(model->forward(ids, step ? &run : nullptr).value());
  };
  EXPECT_EQ(out(3), out(3));
  EXPECT_NE(out(3), out(4));
  EXPECT_NE(out(3), out(std::nullopt));
}

// Longer than the rotations of the first text.
TEST(Llama, CacheEqualsTheWholeText) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    LlamaConfig config = small();
    config.dtype = dtype, config.max_position_embeddings = 40;
    const auto model = make_llama(config);
    std::vector<int32_t> text(33);
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i * 7 % 11);
    const NoGrad no_grad;
    const auto whole = test::values(model->forward(ids_of(text, 1)).value());
    KeyValueCache cache = model->make_cache(40);
    std::vector<double> parts;
    for (size_t at = 0; at < text.size(); at += 11) {
      const std::vector<int32_t> part(text.begin() + static_cast<std::ptrdiff_t>(at),
                                      text.begin() + static_cast<std::ptrdiff_t>(at) + 11);
      for (const double x : test::values(model->forward(ids_of(part, 1), cache).value())) parts.push_back(x);
    }
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < whole.size();
         ++i)  // normalized values of order 1; bfloat16 rounds them by 2⁻⁹ several times
      ASSERT_NEAR(parts[i], whole[i], dtype == DType::f64 ? 1e-12 : 0.05) << dtype << " " << i;
  }
}

TEST(Llama, NamesInvalidInput) {
  LlamaConfig config = small();
  const Llama model(config);
  const auto message = [&](const Llama& m, const Tensor& ids) { return error_of([&] { m.forward(ids); }); };
  EXPECT_EQ(message(model, ids_of({1, 2, 11, 4}, 2)), "llama: token [1, 0] is 11, expected [0, vocab_size 11)");
  EXPECT_EQ(message(model, ids_of({1, 2, 3, 4, 5, 6, 7}, 1)),
            "llama: a text of 7 tokens exceeds max_position_embeddings 6");
  config.model_type = "mistral", config.sliding_window = 3;
  EXPECT_EQ(message(Llama(config), ids_of({1, 2, 3, 4}, 1)), "mistral: a text of 4 tokens exceeds sliding_window 3");
  KeyValueCache cache = model.make_cache(6);
  EXPECT_THAT(error_of([&] { model.forward(ids_of({1, 2}, 1), cache); }), HasSubstr("disable gradients"));
}

// One token uses two of four experts. The others get gradients too, so that all buckets of a replica complete.
TEST(Llama, ExpertsWithoutTokensGetZeroGradients) {
  LlamaConfig config = small();
  config.model_type = "mixtral", config.num_local_experts = 4, config.num_experts_per_tok = 2;
  config.num_hidden_layers = 1, config.router_aux_loss_coef = 0.5;
  const auto model = make_llama(config);
  const Tensor ids = ids_of({3}, 1), labels = Tensor::of(std::vector<int32_t>{4}, {1});
  const Var loss = model->training_loss(ids, labels, nullptr);
  Var balance;
  const Var hidden = model->forward(ids, nullptr, &balance);
  EXPECT_NEAR(loss.value().item(), model->loss(hidden, labels).value().item() + 0.5 * balance.value().item(), 1e-6);
  backward(loss);
  int used = 0, unused = 0;
  for (const Parameter& p : model->parameters()) {
    ASSERT_TRUE(p.var.has_grad()) << p.name;
    if (!p.name.ends_with("w2.weight")) continue;
    double largest = 0;
    for (const double g : test::values(p.var.grad())) largest = std::max(largest, std::abs(g));
    (largest > 0 ? used : unused) += 1;
  }
  EXPECT_EQ(used, 2);
  EXPECT_EQ(unused, 2);
}

class LlamaConfigFile : public ::testing::Test {
 protected:
  TempFolder folder_;
  LlamaConfig read(const json& fields, const std::string& type = "llama") {
    json object{{"model_type", type}};
    if (!fields.is_null()) object.update(fields);
    std::ofstream(folder_ / "config.json") << object;
    return read_llama_config(folder_.str());
  }
  std::string error(const json& fields, const std::string& type = "llama") {
    return error_of([&] { read(fields, type); });
  }
};

TEST_F(LlamaConfigFile, DefaultsAreTransformers) {
  const LlamaConfig llama = read({}), mistral = read({}, "mistral"), qwen2 = read({}, "qwen2");
  const LlamaConfig mixtral = read({}, "mixtral");
  EXPECT_EQ(llama.kv_heads(), 32);
  EXPECT_EQ(llama.eos_token_id, std::vector<int64_t>{2});
  EXPECT_EQ(mistral.kv_heads(), 8);
  EXPECT_EQ(mistral.positions(), 4096);
  EXPECT_EQ(qwen2.intermediate_size, 22016);
  EXPECT_EQ(qwen2.positions(), 32768);
  EXPECT_EQ(mixtral.rope.theta, 1e6);
  EXPECT_EQ(mixtral.num_local_experts, 8);
}

TEST_F(LlamaConfigFile, ReadsBothFormsOfRotaryPositions) {
  const json scaling{
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 512}};
  json older = scaling, newer = scaling;
  older["type"] = "llama3", newer["rope_type"] = "llama3", newer["rope_theta"] = 500000.0;
  const LlamaConfig a = read({{"rope_theta", 500000.0}, {"rope_scaling", older}}),
                    b = read({{"rope_parameters", newer}});
  EXPECT_EQ(a.rope.type, "llama3");
  EXPECT_EQ(a.rope.theta, 500000);
  EXPECT_EQ(a.rope.original_positions, 512);
  EXPECT_EQ(hash(a), hash(b));
  EXPECT_NE(hash(a), hash(read({{"rope_theta", 500000.0}})));
  const LlamaConfig yarn = read({{"rope_scaling", {{"type", "yarn"}, {"original_max_position_embeddings", 512}}}});
  EXPECT_EQ(yarn.rope.factor, 4);  // of 2,048 positions
  EXPECT_EQ(rotary_magnitude(yarn.rope), 0.1 * std::log(4.0) + 1);
}

TEST_F(LlamaConfigFile, WindowsLimitThePositions) {
  EXPECT_EQ(read({{"sliding_window", 64}}, "mistral").positions(), 64);
  EXPECT_EQ(read({{"sliding_window", nullptr}}, "mistral").positions(), 131072);
  EXPECT_EQ(read({{"sliding_window", 64}}, "qwen2").positions(), 32768);
  EXPECT_EQ(read({{"sliding_window", 64}, {"use_sliding_window", true}}, "qwen2").positions(), 64);
}

TEST_F(LlamaConfigFile, NamesInvalidFields) {
  EXPECT_THAT(error({}, "gemma"), AllOf(HasSubstr(folder_ / "config.json"), HasSubstr("got \"gemma\""),
                                        HasSubstr("must be llama, mistral, qwen2 or mixtral")));
  EXPECT_THAT(error({{"num_key_value_heads", 5}}),
              HasSubstr("num_attention_heads 32 is not a multiple of num_key_value_heads 5"));
  EXPECT_THAT(error({{"hidden_size", 100}}), HasSubstr("hidden_size 100 is not a multiple of num_attention_heads 32"));
  EXPECT_THAT(error({{"hidden_size", nullptr}}), HasSubstr("hidden_size must be an integer, got null"));
  EXPECT_THAT(error({{"head_dim", 7}}), HasSubstr("head_dim must be even for rotary positions, got 7"));
  EXPECT_THAT(error({{"hidden_act", "gelu"}}), HasSubstr("hidden_act must be \"silu\""));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "longrope"}, {"factor", 2}}}}),
              HasSubstr("rope_type 'longrope' is not supported, expected default, linear, dynamic, llama3 or yarn"));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "linear"}}}}), HasSubstr("rope_scaling: has no factor"));
  EXPECT_THAT(error({{"rope_parameters", "linear"}}), HasSubstr("rope_parameters must be an object"));
  EXPECT_THAT(error({{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}),
              HasSubstr("partial_rotary_factor must be 1 (all columns of a head are rotated), got 0.5"));
  EXPECT_THAT(error({{"rope_theta", 0}}), HasSubstr("rope_theta must be finite and above 1, got 0"));
  EXPECT_THAT(error({{"eos_token_id", "end"}}), HasSubstr("eos_token_id must be an integer or a list of integers"));
  EXPECT_THAT(error({{"num_experts_per_tok", 9}}, "mixtral"),
              HasSubstr("num_experts_per_tok 9 exceeds num_local_experts 8"));
  EXPECT_THAT(error({{"num_hidden_layers", 4096}, {"num_local_experts", 4096}}, "mixtral"),
              HasSubstr("num_hidden_layers · num_local_experts must be from 1 to 65536, got 16777216"));
  EXPECT_THAT(error_of([&] { read_causal_lm_config(folder_of("bert")); }),
              HasSubstr("model_type must be gpt2, llama, mistral, qwen2 or mixtral, got \"bert\""));
  std::ofstream(folder_ / "config.json") << R"({"architectures": ["Gemma2ForCausalLM"]})";
  EXPECT_THAT(error_of([&] { read_causal_lm_config(folder_.str()); }),
              HasSubstr("has no model_type, expected gpt2, llama, mistral, qwen2 or mixtral"));
}

class LlamaWeights : public ::testing::TestWithParam<const char*> {
 protected:
  TempFolder folder_;
  std::string golden_ = folder_of(GetParam());
  LlamaConfig config_ = read_llama_config(golden_);
  std::map<std::string, Tensor> file_ = load_safetensors(golden_ + "/model.safetensors");

  std::string saved() {
    save_safetensors(folder_ / "model.safetensors", {file_.begin(), file_.end()});
    return folder_ / "model.safetensors";
  }
};

TEST_P(LlamaWeights, LoadsAFolderOfTransformers) {
  const Llama model(config_);
  load_pretrained(golden_, model);
  expect_formula(model);
}

TEST_P(LlamaWeights, SavesTheFilesOfTransformers) {
  const Llama model(config_);
  test::fill_by_formula(model);
  save_pretrained(folder_ / "new", model);
  const auto ours = load_safetensors(folder_ / "new/model.safetensors");
  ASSERT_EQ(ours.size(), file_.size());
  for (const auto& [name, tensor] : file_) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
  }
  std::ifstream mine(folder_ / "new/config.json"), theirs(golden_ + "/config.json");
  const json written = json::parse(mine), golden = json::parse(theirs);
  for (const auto& [field, value] : golden["rope_parameters"].items())
    EXPECT_EQ(written["rope_parameters"].at(field), value) << field;
  for (const auto& [field, value] : written.items())
    if (!field.starts_with("rope_")) {
      EXPECT_EQ(golden.at(field), value) << field;
    }
  EXPECT_EQ(hash(read_llama_config(folder_ / "new")), hash(config_));
}

TEST_P(LlamaWeights, AcceptsNamesOfTheBaseModelAndOldFrequencies) {
  std::map<std::string, Tensor> other;
  for (const auto& [name, tensor] : file_)
    other[name.starts_with("model.") ? name.substr(6) : name] = tensor.to(DType::f64);
  other["layers.0.self_attn.rotary_emb.inv_freq"] = Tensor::zeros({2});
  file_ = other;
  const Llama model(config_);
  load_pretrained(saved(), model);
  expect_formula(model);
}

TEST_P(LlamaWeights, NamesTensorsThatDoNotFit) {
  file_["model.embed_tokens.weight"] = Tensor::zeros({12, 8});
  file_["model.layers.0.self_attn.k_proj.weight"] = Tensor::zeros({4, 9});
  file_.erase("model.norm.weight");
  file_["transformer.wte.weight"] = Tensor::zeros({11, 8});
  const Llama model(config_);
  for (const Parameter& p : model.parameters()) p.var.value().fill(42);
  const std::string path = saved(), text = error_of([&] { load_pretrained(path, model); });
  EXPECT_THAT(text, AllOf(HasSubstr(detail::concat("does not fit a ", config_.model_type, " of 1 layers")),
                          HasSubstr("embed_tokens.weight is [12, 8], the model expects [11, 8] by vocab_size 11"),
                          HasSubstr("k_proj.weight is [4, 9]"), HasSubstr("1 missing (model.norm.weight)"),
                          HasSubstr("unexpected (transformer.wte.weight)")));
  for (const Parameter& p : model.parameters()) EXPECT_EQ(p.var.value().item(), 42) << p.name << " was modified";
}

// Terabytes, if memory for the weights were allocated first.
TEST_P(LlamaWeights, ChecksTheFileBeforeItAllocatesMemory) {
  LlamaConfig config = config_;
  config.num_hidden_layers = 1 << 12, config.intermediate_size = 1 << 22;
  EXPECT_THAT(error_of([&] { load_causal_lm(golden_, config); }), HasSubstr("does not fit"));
  const auto model = load_causal_lm(golden_, config_);
  for (const Parameter& p : model->parameters()) EXPECT_FALSE(Leaf(p.var).is_deferred()) << p.name;
  expect_formula(dynamic_cast<const Llama&>(*model));
}

// Workers with sharded parameters read and convert their elements only.
TEST_P(LlamaWeights, DeferredParametersReadPartsOfTheFile) {
  for (auto& [name, tensor] : file_) tensor = tensor.to(DType::bf16);
  const nn::DeferParameters deferred;
  const Llama model(config_);
  load_pretrained(saved(), model);
  for (const Parameter& p : model.parameters()) {
    Pool& pool = *context().pool;
    const Tensor part({2}), expected(p.var.shape());
    pool.reset_peak();
    const int64_t before = pool.stats().bytes_in_use;
    Leaf(p.var).read(part, 2);
    EXPECT_LT(pool.stats().peak_bytes_in_use - before, 128) << p.name;
    test::fill_by_formula(p.name, expected);
    const Tensor rounded = expected.to(DType::bf16).to(DType::f32);
    EXPECT_EQ(part.to_vector<float>(), rounded.view({rounded.numel()}).range(2, 2).to_vector<float>()) << p.name;
    EXPECT_TRUE(Leaf(p.var).is_deferred()) << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, LlamaWeights, ::testing::Values("llama3", "qwen2", "mixtral"));

}  // namespace llama_test
}  // namespace godwit
