// GPT-2 in HuggingFace's folders.
#include <map>
#include <string_view>

#include "autograd/ops/transpose.h"
#include "engine/excerpt.h"
#include "engine/safetensors.h"
#include "models/gpt2.h"
#include "models/weights_folder.h"

namespace godwit {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr const char *kTokens = "transformer.wte.weight", *kHead = "lm_head.weight";

// Whether HuggingFace stores the parameter as [in, out].
bool is_conv1d(std::string_view name) {
  for (const std::string_view layer : {"c_attn.weight", "c_proj.weight", "c_fc.weight"})
    if (name.ends_with(layer)) return true;
  return false;
}

Shape swapped(const Shape& shape) { return {shape[1], shape[0]}; }

Tensor transposed(const Tensor& x) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const Tensor y({1, columns, rows}, x.dtype(), kCpu);
  transpose_forward(Cpu{}, x.to(kCpu).view({1, rows, columns}), y);
  return y.view({columns, rows});
}

// The field of config.json behind an extent of a tensor, in HuggingFace's layout.
const char* field_of(std::string_view name, int dimension) {
  const auto contains = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (contains("wte") && dimension == 0) return "vocab_size";
  if (contains("wpe") && dimension == 0) return "n_positions";
  const bool is_weight = name.ends_with("weight");
  if (contains("c_fc") && dimension == (is_weight ? 1 : 0)) return "n_inner";
  if (contains("mlp.c_proj") && is_weight && dimension == 0) return "n_inner";
  return "n_embd";
}

// Old files contain the causal masks of attention.
bool is_mask(std::string_view name) { return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"); }

// The file's tensors by the names of the model.
std::map<std::string, Tensor> read_tensors(const std::string& file) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : map_weights(file)) {
    if (is_mask(name)) continue;
    const std::string full = name.starts_with(kPrefix) || name == kHead ? name : std::string(kPrefix) + name;
    check(tensors.emplace(full, tensor).second, file, ": contains ", excerpt(full), " under two names");
  }
  if (const auto head = tensors.extract(kHead)) {
    const auto tokens = tensors.find(kTokens);
    check(tokens == tensors.end() || same_bits(tokens->second, head.mapped()), file, ": ", kHead, " differs from ",
          kTokens, ", but they are one parameter (tie_word_embeddings)");
  }
  return tensors;
}

}  // namespace

void load_pretrained(const std::string& path, const Gpt2& model) {
  const std::string file = weights_file(path);
  std::map<std::string, Tensor> tensors = read_tensors(file);
  std::vector<std::pair<Var, std::function<Tensor()>>> pairs;  // of the model, and its values
  std::vector<std::string> missing, unexpected, different;
  const std::vector<Parameter> parameters = model.parameters();
  for (const Parameter& p : parameters) {
    const auto found = tensors.extract(p.name);
    if (!found) {
      missing.push_back(p.name);
      continue;
    }
    const bool swap = is_conv1d(p.name);
    const Tensor& loaded = found.mapped();
    const std::string problem = difference(p.name, loaded, swap ? swapped(p.var.shape()) : p.var.shape(), field_of);
    const DType type = p.var.dtype();
    if (!problem.empty()) different.push_back(problem);
    else
      pairs.emplace_back(p.var, [=] {
        const Tensor converted = loaded.dtype() == type ? loaded : loaded.to(type);
        return swap ? transposed(converted) : converted;
      });
  }
  for (const auto& [name, tensor] : tensors) unexpected.push_back(excerpt(name));
  check(missing.empty() && unexpected.empty() && different.empty(), file, ": does not fit a GPT-2 of ",
        model.config().n_layer, " layers (n_layer):", listed(missing, "missing"), listed(unexpected, "unexpected"),
        listed(different, "of another shape or type"), " ", pairs.size(), " of ", parameters.size(), " tensors fit");
  for (const auto& [var, values] : pairs) nn::set_values(var, values);
}

void save_pretrained(const std::string& folder, const Gpt2& model) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Parameter& p : model.parameters())
    tensors.emplace_back(p.name, is_conv1d(p.name) ? transposed(p.var.value()) : p.var.value());
  save_weights_file(folder, tensors);
  write_gpt2_config(folder + "/config.json", model.config());
}

}  // namespace godwit
