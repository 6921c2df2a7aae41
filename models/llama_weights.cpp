// LLaMA and related models in HuggingFace's folders.
#include <map>
#include <string_view>

#include "engine/excerpt.h"
#include "engine/safetensors.h"
#include "models/llama.h"
#include "models/weights_folder.h"

namespace godwit {
namespace {

// The field of config.json that determines an extent of a tensor.
const char* llama_field(std::string_view name, int dimension) {
  struct Row {
    const char *part, *first, *second;
  };
  constexpr const char *kHidden = "hidden_size", *kInner = "intermediate_size";
  for (const Row& row : {Row{"embed_tokens", "vocab_size", kHidden},
                         {"lm_head", "vocab_size", kHidden},
                         {"q_proj", "num_attention_heads · head_dim", kHidden},
                         {"k_proj", "num_key_value_heads · head_dim", kHidden},
                         {"v_proj", "num_key_value_heads · head_dim", kHidden},
                         {"o_proj", kHidden, "num_attention_heads · head_dim"},
                         {"down_proj", kHidden, kInner},
                         {"_proj", kInner, kHidden},
                         {"block_sparse_moe.gate", "num_local_experts", kHidden},
                         {".w2.", kHidden, kInner},
                         {".experts.", kInner, kHidden}})
    if (name.find(row.part) != std::string_view::npos) return dimension == 0 ? row.first : row.second;
  return kHidden;
}

// The file's tensors by Godwit's parameter names, without the rotary frequencies of old files.
std::map<std::string, Tensor> read_tensors(const std::string& file, bool tied) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : map_weights(file)) {
    if (name.ends_with("rotary_emb.inv_freq")) continue;
    const bool bare = name.starts_with("layers.") || name.starts_with("embed_tokens.") || name.starts_with("norm.");
    const std::string full = bare ? "model." + name : name;
    check(tensors.emplace(full, tensor).second, file, ": contains ", excerpt(full), " under two names");
  }
  if (tied) extract_tied(file, "lm_head.weight", "model.embed_tokens.weight", &tensors);
  return tensors;
}

}  // namespace

void Llama::load(const std::string& path) const {
  const std::string file = weights_file(path);
  load_parameters(
      file, read_tensors(file, config_.tie_word_embeddings), parameters(), llama_field,
      detail::concat("a ", config_.model_type, " of ", config_.num_hidden_layers, " layers (num_hidden_layers)"));
}

void Llama::save(const std::string& folder) const {
  save_weights_file(folder, parameters());
  write_llama_config(folder + "/config.json", config_);
}

}  // namespace godwit
