#include "models/gpt2_config.h"

#include <cmath>
#include <utility>

#include "engine/check.h"
#include "engine/did_you_mean.h"
#include "models/config_json-inl.h"
#include "models/named_configs.h"

namespace godwit {
namespace {

using nlohmann::ordered_json;

// Radford et al. 2019, table 2; the first two as in nanoGPT's configurations for single characters.
const NamedConfigs<Gpt2Config>& gpt2_table() {
  const auto sized = [](int64_t layers, int64_t heads, int64_t width) {
    return Gpt2Config{.n_embd = width, .n_layer = layers, .n_head = heads};
  };
  static const NamedConfigs<Gpt2Config> rows{
      {"gpt2_nano", sized(4, 4, 128)},      {"gpt2_micro", sized(6, 6, 384)},    {"gpt2", sized(12, 12, 768)},
      {"gpt2_medium", sized(24, 16, 1024)}, {"gpt2_large", sized(36, 20, 1280)}, {"gpt2_xl", sized(48, 25, 1600)},
  };
  return rows;
}

// The integers of config.json with their largest values, which keep sizes far from overflow. `alias`: another name that
// transformers reads.
struct Gpt2Size {
  const char *name, *alias;
  int64_t Gpt2Config::*member;
  int64_t most;
};
constexpr Gpt2Size kGpt2Sizes[] = {
    {"vocab_size", nullptr, &Gpt2Config::vocab_size, 1 << 28},
    {"n_positions", "max_position_embeddings", &Gpt2Config::n_positions, 1 << 24},
    {"n_embd", "hidden_size", &Gpt2Config::n_embd, 1 << 20},
    {"n_layer", "num_hidden_layers", &Gpt2Config::n_layer, 1 << 12},
    {"n_head", "num_attention_heads", &Gpt2Config::n_head, 1 << 20},
};

struct Fraction {
  const char* name;
  double Gpt2Config::*member;
};
constexpr Fraction kDropouts[] = {{"embd_pdrop", &Gpt2Config::embd_pdrop},
                                  {"attn_pdrop", &Gpt2Config::attn_pdrop},
                                  {"resid_pdrop", &Gpt2Config::resid_pdrop}};

const std::vector<std::string> kGpt2Activations{"gelu_new", "gelu", "gelu_pytorch_tanh", "relu"};

ordered_json to_json(const Gpt2Config& config) {
  const auto id = [](const std::optional<int64_t>& token) { return token ? ordered_json(*token) : ordered_json(); };
  ordered_json object{{"model_type", "gpt2"}};
  for (const Gpt2Size& size : kGpt2Sizes) object[size.name] = config.*size.member;
  object["n_inner"] = id(config.n_inner);
  object["activation_function"] = config.activation_function;
  for (const Fraction& p : kDropouts) object[p.name] = config.*p.member;
  object["initializer_range"] = config.initializer_range;
  object["layer_norm_epsilon"] = config.layer_norm_epsilon;
  object["bos_token_id"] = id(config.bos_token_id);
  object["eos_token_id"] = id(config.eos_token_id);
  if (config.pad_token_id) object["pad_token_id"] = *config.pad_token_id;
  return object;
}

// A token id, none if it is null; `standard` if it is missing.
std::optional<int64_t> read_token(const ConfigReader& reader, const char* name, int64_t standard) {
  if (reader.is_null(name)) return std::nullopt;
  int64_t id = standard;
  reader.integer(name, &id);
  return id;
}

}  // namespace

std::vector<std::string> gpt2_names() { return names_of(gpt2_table()); }

Gpt2Config gpt2_config(const std::string& name) { return config_of(gpt2_table(), "gpt2", name); }

void check_gpt2_config(const Gpt2Config& config) {
  for (const Gpt2Size& size : kGpt2Sizes)
    check(config.*size.member >= 1 && config.*size.member <= size.most, "gpt2: ", size.name, " must be from 1 to ",
          size.most, ", got ", config.*size.member);
  check(config.inner() >= 1 && config.inner() <= 1 << 22, "gpt2: n_inner must be from 1 to ", 1 << 22, ", got ",
        config.inner());
  check(config.n_embd % config.n_head == 0, "gpt2: n_embd ", config.n_embd, " is not a multiple of n_head ",
        config.n_head);
  if (!contains(kGpt2Activations, config.activation_function))
    fail("gpt2: activation_function '", excerpt(config.activation_function), "' is not supported",
         did_you_mean(config.activation_function, kGpt2Activations));
  for (const Fraction& p : kDropouts)
    check(config.*p.member >= 0 && config.*p.member < 1, "gpt2: ", p.name, " must be in [0, 1), got ",
          config.*p.member);
  check(config.initializer_range >= 0 && std::isfinite(config.initializer_range),
        "gpt2: initializer_range must be finite and not negative, got ", config.initializer_range);
  check(config.layer_norm_epsilon > 0 && std::isfinite(config.layer_norm_epsilon),
        "gpt2: layer_norm_epsilon must be finite and positive, got ", config.layer_norm_epsilon);
  check(config.recompute >= 0 && config.recompute <= config.n_layer, "gpt2: recompute must be from 0 to n_layer ",
        config.n_layer, ", got ", config.recompute);
  check(config.dtype == DType::f32 || config.dtype == DType::bf16 || config.dtype == DType::f64,
        "gpt2: dtype must be f32, bf16 or f64, got ", config.dtype);
}

Gpt2Config read_gpt2_config(const std::string& path) {
  const ConfigReader reader(path);
  check(reader.find("model_type") != nullptr, reader.file(), ": has no model_type, expected \"gpt2\"");
  reader.only("model_type", "gpt2", "the architecture of this model");
  reader.only("scale_attn_weights", true, "scores are always scaled by 1/√width");
  reader.only("scale_attn_by_inverse_layer_idx", false, "scores are not scaled by layer");
  reader.only("add_cross_attention", false, "only decoders without an encoder are supported");
  reader.only("tie_word_embeddings", true, "the output layer shares the weight of the token embedding");
  Gpt2Config config;
  for (const Gpt2Size& size : kGpt2Sizes) {
    int64_t& value = config.*size.member;
    if (size.alias) reader.size(size.alias, &value);
    const int64_t by_alias = value;
    reader.size(size.name, &value);
    check(value == by_alias || !size.alias || !reader.find(size.alias), reader.file(), ": ", size.name, " is ", value,
          " and ", size.alias, " is ", by_alias, ", but they are two names of one size; leave one of them out");
  }
  if (reader.find("n_inner")) reader.integer("n_inner", &config.n_inner.emplace());
  reader.text("activation_function", &config.activation_function);
  for (const Fraction& p : kDropouts) reader.number(p.name, &(config.*p.member));
  reader.number("initializer_range", &config.initializer_range);
  reader.number("layer_norm_epsilon", &config.layer_norm_epsilon);
  constexpr int64_t kEndOfText = 50256;
  config.bos_token_id = read_token(reader, "bos_token_id", kEndOfText);
  config.eos_token_id = read_token(reader, "eos_token_id", kEndOfText);
  if (reader.find("pad_token_id")) reader.integer("pad_token_id", &config.pad_token_id.emplace());
  with_place(reader.file(), [&] { check_gpt2_config(config); });
  return config;
}

uint64_t hash(const Gpt2Config& config) { return hash_config(to_json(config), config.dtype); }

void write_gpt2_config(const std::string& path, const Gpt2Config& config) {
  ordered_json object = to_json(config);
  object["architectures"] = {"GPT2LMHeadModel"};
  write_config_json(path, object);
}

}  // namespace godwit
