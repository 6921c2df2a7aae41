#include "models/llama_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/check.h"
#include "models/config_json-inl.h"
#include "models/named_configs.h"

namespace godwit {
namespace {

using nlohmann::ordered_json;

// Shapes of the published models; the small ones have the width and depth of GPT-2's.
const NamedConfigs<LlamaConfig>& llama_table() {
  const auto small = [](int64_t layers, int64_t heads, int64_t width, int64_t inner) {
    return LlamaConfig{.hidden_size = width,
                       .intermediate_size = inner,
                       .num_hidden_layers = layers,
                       .num_attention_heads = heads,
                       .num_key_value_heads = 2,
                       .tie_word_embeddings = true};
  };
  static const NamedConfigs<LlamaConfig> rows = [&] {
    LlamaConfig one_b{.vocab_size = 128256,
                      .max_position_embeddings = 131072,
                      .hidden_size = 2048,
                      .intermediate_size = 8192,
                      .num_hidden_layers = 16,
                      .num_key_value_heads = 8,
                      .rope = {.type = "llama3", .theta = 500000, .factor = 32, .original_positions = 8192},
                      .tie_word_embeddings = true,
                      .rms_norm_eps = 1e-5};
    LlamaConfig eight_b{.vocab_size = 128256,
                        .max_position_embeddings = 8192,
                        .intermediate_size = 14336,
                        .num_key_value_heads = 8,
                        .rope = {.theta = 500000},
                        .rms_norm_eps = 1e-5};
    LlamaConfig mistral{.model_type = "mistral",
                        .max_position_embeddings = 32768,
                        .intermediate_size = 14336,
                        .num_key_value_heads = 8,
                        .rope = {.theta = 1e6},
                        .rms_norm_eps = 1e-5};
    LlamaConfig qwen2{.model_type = "qwen2",
                      .vocab_size = 151936,
                      .max_position_embeddings = 131072,
                      .hidden_size = 896,
                      .intermediate_size = 4864,
                      .num_hidden_layers = 24,
                      .num_attention_heads = 14,
                      .num_key_value_heads = 2,
                      .rope = {.theta = 1e6},
                      .tie_word_embeddings = true};
    LlamaConfig experts = mistral, few = small(4, 4, 128, 256);
    experts.model_type = few.model_type = "mixtral";
    experts.num_local_experts = 8, few.num_local_experts = 4;
    experts.router_aux_loss_coef = few.router_aux_loss_coef = 0.02;
    return NamedConfigs<LlamaConfig>{{"llama_nano", small(4, 4, 128, 344)},
                                     {"llama_micro", small(6, 6, 384, 1024)},
                                     {"llama3_1b", one_b},
                                     {"llama3_8b", eight_b},
                                     {"mistral_7b", mistral},
                                     {"qwen2_0_5b", qwen2},
                                     {"mixtral_nano", few},
                                     {"mixtral_8x7b", experts}};
  }();
  return rows;
}

// The integers of config.json with their largest values, which keep sizes far from overflow.
struct LlamaSize {
  const char* name;
  int64_t LlamaConfig::*member;
  int64_t most;
};
constexpr LlamaSize kLlamaSizes[] = {{"vocab_size", &LlamaConfig::vocab_size, 1 << 28},
                                     {"max_position_embeddings", &LlamaConfig::max_position_embeddings, 1 << 24},
                                     {"hidden_size", &LlamaConfig::hidden_size, 1 << 20},
                                     {"intermediate_size", &LlamaConfig::intermediate_size, 1 << 22},
                                     {"num_hidden_layers", &LlamaConfig::num_hidden_layers, 1 << 12},
                                     {"num_attention_heads", &LlamaConfig::num_attention_heads, 1 << 14}};
constexpr LlamaSize kExperts[] = {{"num_local_experts", &LlamaConfig::num_local_experts, 1 << 12},
                                  {"num_experts_per_tok", &LlamaConfig::num_experts_per_tok, 1 << 12}};

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json rope_json(const RotaryScaling& rope) {
  ordered_json object{{"rope_theta", rope.theta}, {"rope_type", rope.type}};
  if (rope.type == "default") return object;
  object["factor"] = rope.factor;
  if (rope.type == "llama3" || rope.type == "yarn")
    object["original_max_position_embeddings"] = rope.original_positions;
  if (rope.type == "llama3") {
    object["low_freq_factor"] = rope.low_freq_factor;
    object["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == "yarn") {
    object["beta_fast"] = rope.beta_fast;
    object["beta_slow"] = rope.beta_slow;
    object["truncate"] = rope.truncate;
    if (rope.attention_factor) object["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) object["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) object["mscale_all_dim"] = *rope.mscale_all_dim;
  }
  return object;
}

ordered_json to_json(const LlamaConfig& config) {
  ordered_json object{{"model_type", config.model_type}};
  for (const LlamaSize& size : kLlamaSizes) object[size.name] = config.*size.member;
  object["num_key_value_heads"] = config.kv_heads();
  if (config.head_dim || config.model_type != "qwen2") object["head_dim"] = or_null(config.head_dim);
  object["hidden_act"] = "silu";
  object["rms_norm_eps"] = config.rms_norm_eps;
  object["rope_parameters"] = rope_json(config.rope);
  object["tie_word_embeddings"] = config.tie_word_embeddings;
  object["attention_dropout"] = config.attention_dropout;
  object["initializer_range"] = config.initializer_range;
  if (config.model_type == "llama") {
    object["attention_bias"] = config.attention_bias;
    object["mlp_bias"] = config.mlp_bias;
  } else {
    object["sliding_window"] = or_null(config.sliding_window);
  }
  if (config.model_type == "qwen2") {
    object["use_sliding_window"] = config.sliding_window.has_value();
    object["max_window_layers"] = config.max_window_layers;
  }
  if (config.has_experts()) {
    for (const LlamaSize& size : kExperts) object[size.name] = config.*size.member;
    object["router_aux_loss_coef"] = config.router_aux_loss_coef;
  }
  object["bos_token_id"] = or_null(config.bos_token_id);
  if (config.eos_token_id.empty()) object["eos_token_id"] = nullptr;
  else if (config.eos_token_id.size() == 1) object["eos_token_id"] = config.eos_token_id[0];
  else object["eos_token_id"] = config.eos_token_id;
  if (config.pad_token_id) object["pad_token_id"] = *config.pad_token_id;
  return object;
}

const char* architecture(const std::string& type) {
  if (type == "mistral") return "MistralForCausalLM";
  if (type == "qwen2") return "Qwen2ForCausalLM";
  return type == "mixtral" ? "MixtralForCausalLM" : "LlamaForCausalLM";
}

// The defaults of transformers' configuration of this type.
LlamaConfig defaults_of(const std::string& type) {
  LlamaConfig config{.model_type = type, .bos_token_id = 1, .eos_token_id = {2}};
  if (type == "mistral" || type == "mixtral") {
    config.max_position_embeddings = 131072, config.intermediate_size = 14336, config.num_key_value_heads = 8;
    if (type == "mistral") config.sliding_window = 4096;
    else config.rms_norm_eps = 1e-5, config.rope.theta = 1e6, config.num_local_experts = 8;
  }
  if (type == "qwen2") {
    config.vocab_size = 151936, config.max_position_embeddings = 32768, config.intermediate_size = 22016;
    config.num_key_value_heads = 32, config.bos_token_id = std::nullopt, config.eos_token_id = {};
  }
  return config;
}

void read_optional(const ConfigReader& reader, const char* name, std::optional<int64_t>* to) {
  if (reader.is_null(name)) *to = std::nullopt;
  else if (reader.find(name)) reader.integer(name, &to->emplace());
}

void read_optional(const ConfigReader& reader, const char* name, std::optional<double>* to) {
  if (reader.find(name)) reader.number(name, &to->emplace());
}

// transformers prefers rope_scaling, the older form, if both are given.
void read_rope(const ConfigReader& reader, LlamaConfig* config) {
  RotaryScaling& rope = config->rope;
  reader.number("rope_theta", &rope.theta);
  rope.original_positions = config->max_position_embeddings;
  reader.only("partial_rotary_factor", 1, "all columns of a head are rotated");
  const nlohmann::json* scaling = reader.find("rope_scaling");
  const bool old = scaling && !scaling->empty();
  if (!old && !reader.find("rope_parameters")) return;
  const ConfigReader fields = reader.nested(old ? "rope_scaling" : "rope_parameters");
  fields.only("partial_rotary_factor", 1, "all columns of a head are rotated");
  fields.text("type", &rope.type);
  fields.text("rope_type", &rope.type);
  fields.number("rope_theta", &rope.theta);
  fields.integer("original_max_position_embeddings", &rope.original_positions);
  reader.integer("original_max_position_embeddings", &rope.original_positions);
  if (rope.type == "default") return;
  if (rope.type == "yarn" && !fields.find("factor") && rope.original_positions > 0)
    rope.factor = static_cast<double>(config->max_position_embeddings) / static_cast<double>(rope.original_positions);
  else fields.require("factor");
  fields.number("factor", &rope.factor);
  if (rope.type == "llama3") {
    fields.require("low_freq_factor"), fields.require("high_freq_factor");
    fields.number("low_freq_factor", &rope.low_freq_factor);
    fields.number("high_freq_factor", &rope.high_freq_factor);
  }
  if (rope.type != "yarn") return;
  fields.number("beta_fast", &rope.beta_fast);
  fields.number("beta_slow", &rope.beta_slow);
  fields.boolean("truncate", &rope.truncate);
  read_optional(fields, "attention_factor", &rope.attention_factor);
  read_optional(fields, "mscale", &rope.mscale);
  read_optional(fields, "mscale_all_dim", &rope.mscale_all_dim);
}

void read_window(const ConfigReader& reader, LlamaConfig* config) {
  if (config->model_type == "llama") return;
  read_optional(reader, "sliding_window", &config->sliding_window);
  if (config->model_type != "qwen2") return;
  reader.integer("max_window_layers", &config->max_window_layers);
  bool used = false;
  reader.boolean("use_sliding_window", &used);
  if (used && !config->sliding_window) config->sliding_window = 4096;
  if (!used) config->sliding_window = std::nullopt;
}

}  // namespace

int64_t LlamaConfig::positions() const {
  return std::min(max_position_embeddings, sliding_window.value_or(max_position_embeddings));
}

const char* LlamaConfig::positions_field() const {
  return positions() < max_position_embeddings ? "sliding_window" : "max_position_embeddings";
}

std::vector<std::string> llama_types() { return {"llama", "mistral", "qwen2", "mixtral"}; }

std::vector<std::string> llama_names() { return names_of(llama_table()); }

LlamaConfig llama_config(const std::string& name) { return config_of(llama_table(), "llama", name); }

void check_llama_config(const LlamaConfig& config) {
  const std::string& name = config.model_type;
  check(contains(llama_types(), name), "llama: model_type '", excerpt(name),
        "' is not supported, expected llama, mistral, qwen2 or mixtral");
  const auto in_range = [&](const char* field, int64_t value, int64_t most) {
    check(value >= 1 && value <= most, name, ": ", field, " must be from 1 to ", most, ", got ", value);
  };
  for (const LlamaSize& size : kLlamaSizes) in_range(size.name, config.*size.member, size.most);
  in_range("num_key_value_heads", config.kv_heads(), 1 << 14);
  check(config.num_attention_heads % config.kv_heads() == 0, name, ": num_attention_heads ", config.num_attention_heads,
        " is not a multiple of num_key_value_heads ", config.kv_heads());
  check(config.head_dim || config.hidden_size % config.num_attention_heads == 0, name, ": hidden_size ",
        config.hidden_size, " is not a multiple of num_attention_heads ", config.num_attention_heads);
  in_range("head_dim", config.head_width(), 1 << 14);
  check(config.head_width() % 2 == 0, name, ": head_dim must be even for rotary positions, got ", config.head_width());
  if (config.sliding_window) in_range("sliding_window", *config.sliding_window, int64_t{1} << 40);
  if (config.has_experts()) {
    for (const LlamaSize& size : kExperts) in_range(size.name, config.*size.member, size.most);
    in_range("num_hidden_layers · num_local_experts", config.num_hidden_layers * config.num_local_experts, 1 << 16);
    check(config.num_experts_per_tok <= config.num_local_experts, name, ": num_experts_per_tok ",
          config.num_experts_per_tok, " exceeds num_local_experts ", config.num_local_experts);
    check(config.router_aux_loss_coef >= 0 && std::isfinite(config.router_aux_loss_coef), name,
          ": router_aux_loss_coef must be finite and not negative, got ", config.router_aux_loss_coef);
  }
  check_rotary(config.rope, name);
  check(config.attention_dropout >= 0 && config.attention_dropout < 1, name,
        ": attention_dropout must be in [0, 1), got ", config.attention_dropout);
  check(config.initializer_range >= 0 && std::isfinite(config.initializer_range), name,
        ": initializer_range must be finite and not negative, got ", config.initializer_range);
  check(config.rms_norm_eps > 0 && std::isfinite(config.rms_norm_eps), name,
        ": rms_norm_eps must be finite and positive, got ", config.rms_norm_eps);
  check(config.recompute >= 0 && config.recompute <= config.num_hidden_layers, name,
        ": recompute must be from 0 to num_hidden_layers ", config.num_hidden_layers, ", got ", config.recompute);
  check(config.recompute == 0 || !config.has_experts(), name,
        ": recompute is ", config.recompute, ", but layers with experts cannot be recomputed; expected 0");
  check(config.dtype == DType::f32 || config.dtype == DType::bf16 || config.dtype == DType::f64, name,
        ": dtype must be f32, bf16 or f64, got ", config.dtype);
}

LlamaConfig read_llama_config(const std::string& path) {
  const ConfigReader reader(path);
  std::string type;
  reader.require("model_type");
  reader.text("model_type", &type);
  if (!contains(llama_types(), type))
    reader.wrong("model_type", type, "must be llama, mistral, qwen2 or mixtral");
  LlamaConfig config = defaults_of(type);
  for (const LlamaSize& size : kLlamaSizes) reader.size(size.name, &(config.*size.member));
  read_optional(reader, "num_key_value_heads", &config.num_key_value_heads);
  read_optional(reader, "head_dim", &config.head_dim);
  reader.only("hidden_act", "silu", "the feed-forward layers are SwiGLU");
  read_rope(reader, &config);
  read_window(reader, &config);
  reader.boolean("tie_word_embeddings", &config.tie_word_embeddings);
  if (type == "llama") reader.boolean("attention_bias", &config.attention_bias);
  if (type == "llama") reader.boolean("mlp_bias", &config.mlp_bias);
  if (config.has_experts()) {
    for (const LlamaSize& size : kExperts) reader.size(size.name, &(config.*size.member));
    reader.number("router_aux_loss_coef", &config.router_aux_loss_coef);
    reader.only("router_jitter_noise", 0.0, "the router's inputs get no noise");
  }
  reader.number("rms_norm_eps", &config.rms_norm_eps);
  reader.number("attention_dropout", &config.attention_dropout);
  reader.number("initializer_range", &config.initializer_range);
  read_optional(reader, "bos_token_id", &config.bos_token_id);
  reader.tokens("eos_token_id", &config.eos_token_id);
  read_optional(reader, "pad_token_id", &config.pad_token_id);
  with_place(reader.file(), [&] { check_llama_config(config); });
  return config;
}

uint64_t hash(const LlamaConfig& config) { return hash_config(to_json(config), config.dtype); }

void write_llama_config(const std::string& path, const LlamaConfig& config) {
  ordered_json object = to_json(config);
  object["architectures"] = {architecture(config.model_type)};
  object["rope_theta"] = config.rope.theta;
  object["rope_scaling"] = config.rope.type == "default" ? ordered_json() : rope_json(config.rope);
  write_config_json(path, object);
}

}  // namespace godwit
