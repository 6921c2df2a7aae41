// GPT-2 in HuggingFace's folders.
#include <map>
#include <string_view>

#include "engine/excerpt.h"
#include "engine/safetensors.h"
#include "models/gpt2.h"
#include "models/weights_folder.h"

namespace godwit {
namespace {

constexpr const char* kHead = "lm_head.weight";

// The field of config.json that determines an extent of a tensor, in HuggingFace's layout.
const char* gpt2_field(std::string_view name, int dimension) {
  const auto contains = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (contains("c_attn") && dimension == (name.ends_with("weight") ? 1 : 0)) return "3 · n_embd =";
  if (contains("wte") && dimension == 0) return "vocab_size";
  if (contains("wpe") && dimension == 0) return "n_positions";
  const bool is_weight = name.ends_with("weight");
  if (contains("c_fc") && dimension == (is_weight ? 1 : 0)) return "n_inner";
  if (contains("mlp.c_proj") && is_weight && dimension == 0) return "n_inner";
  return "n_embd";
}

// Old files contain the causal masks of attention.
bool is_mask(std::string_view name) { return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"); }

// The file's tensors by Godwit's parameter names.
std::map<std::string, Tensor> read_tensors(const std::string& file) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : map_weights(file)) {
    if (is_mask(name)) continue;
    const bool bare = name.starts_with("wte.") || name.starts_with("wpe.") || name.starts_with("h.") ||
                      name.starts_with("ln_f.");
    const std::string full = bare ? "transformer." + name : name;
    check(tensors.emplace(full, tensor).second, file, ": contains ", excerpt(full), " under two names");
  }
  extract_tied(file, kHead, "transformer.wte.weight", &tensors);
  return tensors;
}

}  // namespace

void Gpt2::load(const std::string& path) const {
  const std::string file = weights_file(path);
  load_parameters(file, read_tensors(file), parameters(), gpt2_field,
                  detail::concat("a GPT-2 of ", config_.n_layer, " layers (n_layer)"));
}

void Gpt2::save(const std::string& folder) const {
  save_weights_file(folder, parameters());
  write_gpt2_config(folder + "/config.json", config_);
}

}  // namespace godwit
