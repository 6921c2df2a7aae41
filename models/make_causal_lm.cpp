#include "models/make_causal_lm.h"

#include <filesystem>

#include "engine/check.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "models/config_json-inl.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/named_configs.h"

namespace godwit {

std::vector<std::string> causal_lm_names() {
  std::vector<std::string> names = gpt2_names();
  for (const std::string& name : llama_names()) names.push_back(name);
  return names;
}

CausalLMConfig causal_lm_config(const std::string& name) {
  if (contains(gpt2_names(), name)) return gpt2_config(name);
  check(contains(llama_names(), name), "no language model is called '", excerpt(name), "'",
        did_you_mean(name, causal_lm_names()));
  return llama_config(name);
}

CausalLMConfig read_causal_lm_config(const std::string& path) {
  const ConfigReader reader(path);
  std::string type;
  check(reader.find("model_type") != nullptr, reader.file(),
        ": has no model_type, expected gpt2, llama, mistral, qwen2 or mixtral");
  reader.text("model_type", &type);
  if (type == "gpt2") return read_gpt2_config(path);
  if (!contains(llama_types(), type))
    reader.wrong("model_type", type, "must be gpt2, llama, mistral, qwen2 or mixtral");
  return read_llama_config(path);
}

void write_causal_lm_config(const std::string& path, const CausalLMConfig& config) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) write_gpt2_config(path, *gpt2);
  else write_llama_config(path, std::get<LlamaConfig>(config));
}

CausalLM::Sizes sizes_of(const CausalLMConfig& config) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) return Gpt2::sizes_of(*gpt2);
  return Llama::sizes_of(std::get<LlamaConfig>(config));
}

uint64_t hash(const CausalLMConfig& config) {
  return std::visit([](const auto& of) { return hash(of); }, config);
}

void set_text_sizes(CausalLMConfig* config, int64_t vocab_size, int64_t positions, std::optional<int64_t> end) {
  if (auto* gpt2 = std::get_if<Gpt2Config>(config)) {
    gpt2->vocab_size = vocab_size, gpt2->n_positions = positions;
    if (end) gpt2->bos_token_id = gpt2->eos_token_id = *end;
    return;
  }
  auto& llama = std::get<LlamaConfig>(*config);
  llama.vocab_size = vocab_size, llama.max_position_embeddings = positions, llama.sliding_window = std::nullopt;
  if (end) llama.bos_token_id = *end, llama.eos_token_id = {*end};
}

void set_training(CausalLMConfig* config, double dropout, uint64_t seed, DType dtype) {
  if (auto* gpt2 = std::get_if<Gpt2Config>(config)) gpt2->embd_pdrop = gpt2->attn_pdrop = gpt2->resid_pdrop = dropout;
  else std::get<LlamaConfig>(*config).attention_dropout = dropout;
  std::visit([&](auto& of) { of.seed = seed, of.dtype = dtype; }, *config);
}

std::vector<int64_t> end_tokens(const std::string& folder, const CausalLMConfig& config) {
  std::vector<int64_t> ends;
  const std::filesystem::path generation = std::filesystem::path(folder) / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    ConfigReader(generation.string()).tokens("eos_token_id", &ends);
  } else if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) {
    if (gpt2->eos_token_id) ends = {*gpt2->eos_token_id};
  } else {
    ends = std::get<LlamaConfig>(config).eos_token_id;
  }
  return ends;
}

std::unique_ptr<CausalLM> make_causal_lm(const CausalLMConfig& config) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) return make_gpt2(*gpt2);
  return make_llama(std::get<LlamaConfig>(config));
}

std::unique_ptr<CausalLM> load_causal_lm(const std::string& folder, const CausalLMConfig& config) {
  const auto load = [&] {
    std::unique_ptr<CausalLM> model;
    if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) model = std::make_unique<Gpt2>(*gpt2);
    else model = std::make_unique<Llama>(std::get<LlamaConfig>(config));
    load_pretrained(folder, *model);
    return model;
  };
  {
    const nn::DeferParameters deferred;  // only compares names and shapes
    load();
  }
  return load();
}

}  // namespace godwit
