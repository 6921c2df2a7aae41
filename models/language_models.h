// Language models by name or folder: GPT-2, LLaMA and its relatives.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/gpt2_config.h"
#include "models/language_model.h"
#include "models/llama_config.h"

namespace godwit {

// The settings of one of the models.
using LanguageModelConfig = std::variant<Gpt2Config, LlamaConfig>;

std::vector<std::string> language_model_names();  // gpt2_names() and llama_names()
// Throws for an unknown name, suggesting the nearest.
LanguageModelConfig language_model_config(const std::string& name);

// Reads a config.json, or the one in a folder, by its model_type. Throws an Error naming file, field and value if the
// architecture is not supported, or if a field is malformed.
LanguageModelConfig read_language_model_config(const std::string& path);

void write_language_model_config(const std::string& path, const LanguageModelConfig& config);  // a config.json

LanguageModel::Sizes sizes_of(const LanguageModelConfig& config);  // throws if the settings are invalid
uint64_t hash(const LanguageModelConfig& config);                  // of all fields except seed and recompute

// Sets the sizes of a new network that depend on its text. `end`: the token at the end of a text.
void set_text_sizes(LanguageModelConfig* config, int64_t vocab_size, int64_t positions, std::optional<int64_t> end);
// Sets dropout, seed and type for training. GPT-2 drops embeddings, attention probabilities and residual outputs, the
// other models attention probabilities.
void set_training(LanguageModelConfig* config, double dropout, uint64_t seed, DType dtype);

// Tokens after which transformers' generate() stops: eos_token_id of generation_config.json if the folder has this
// file, otherwise that of config.json, given as `config`. Throws if the file is malformed.
std::vector<int64_t> end_tokens(const std::string& folder, const LanguageModelConfig& config);

std::unique_ptr<LanguageModel> make_language_model(const LanguageModelConfig& config);  // with initial weights
// The model of a HuggingFace folder, whose settings are `config`. Throws if the weights are of another model, before
// memory for them is allocated.
std::unique_ptr<LanguageModel> load_language_model(const std::string& folder, const LanguageModelConfig& config);

}  // namespace godwit
