// Creates language models by name or from a folder: GPT-2, LLaMA and related models.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/causal_lm.h"
#include "models/gpt2_config.h"
#include "models/llama_config.h"

namespace godwit {

// The settings of one of the models.
using CausalLMConfig = std::variant<Gpt2Config, LlamaConfig>;

std::vector<std::string> causal_lm_names();  // gpt2_names() and llama_names()
// Throws for an unknown name; suggests the nearest.
CausalLMConfig causal_lm_config(const std::string& name);

// Reads a config.json, or the config.json in a folder, according to its model_type. Throws an Error that names the
// file, field and value if the architecture is not supported, or if a field is malformed.
CausalLMConfig read_causal_lm_config(const std::string& path);

void write_causal_lm_config(const std::string& path, const CausalLMConfig& config);  // writes a config.json

CausalLM::Sizes sizes_of(const CausalLMConfig& config);  // throws for invalid settings
uint64_t hash(const CausalLMConfig& config);                  // hash of all fields except seed and recompute

// Sets the sizes of a new network that depend on its text. `end`: the token at the end of a text.
void set_text_sizes(CausalLMConfig* config, int64_t vocab_size, int64_t positions, std::optional<int64_t> end);
// Sets dropout, seed and type for training. GPT-2 applies dropout to embeddings, attention probabilities and residual
// outputs, the other models to attention probabilities.
void set_training(CausalLMConfig* config, double dropout, uint64_t seed, DType dtype);

// Tokens after which transformers' generate() stops. They are eos_token_id of generation_config.json if the folder has
// this file, otherwise eos_token_id of config.json, which is passed as `config`. Throws if the file is malformed.
std::vector<int64_t> end_tokens(const std::string& folder, const CausalLMConfig& config);

std::unique_ptr<CausalLM> make_causal_lm(const CausalLMConfig& config);  // with initial weights
// The model of a HuggingFace folder, whose settings are `config`. If the weights belong to another model, throws before
// memory for them is allocated.
std::unique_ptr<CausalLM> load_causal_lm(const std::string& folder, const CausalLMConfig& config);

}  // namespace godwit
