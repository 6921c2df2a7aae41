#include "apps/text/gpt_data.h"

#include <filesystem>

#include "apps/config/saved_config.h"
#include "apps/text/default_text.h"
#include "apps/text/notices.h"
#include "apps/text/recompute_option.h"
#include "engine/check.h"
#include "engine/text_file.h"

namespace godwit::apps {
namespace {

// data.tokenizer, or the folder of the initial weights if it has a tokenizer, or "".
std::string tokenizer_path(const GptConfig& config) {
  if (!config.data.tokenizer.empty()) return config.data.tokenizer;
  return !config.init_weights.empty() && data::has_tokenizer(config.init_weights) ? config.init_weights : "";
}

// Completes the settings of the initial weights, or of a new network, which gets positions for one block.
CausalLMConfig model_config(const GptConfig& config, const data::Tokenizer& tokenizer, CausalLMConfig model) {
  if (config.init_weights.empty()) {
    config.sizes.apply(&model);
    set_text_sizes(&model, tokenizer.size(), config.data.context, tokenizer.end_of_text());
  } else {
    const CausalLM::Sizes sizes = sizes_of(model);
    check(config.data.context <= sizes.positions, "blocks of ", config.data.context, " tokens, but ",
          config.init_weights, " has ", sizes.positions, " positions (", sizes.positions_field, "); lower --context");
    check_vocabulary(config, tokenizer, model);
  }
  set_training(&model, config.dropout, config.seed, config.dtype == "bf16" ? DType::bf16 : DType::f32);
  const int64_t recomputed = recomputed_layers(config.recompute, sizes_of(model).layers);  // checks the settings
  std::visit([&](auto& settings) { settings.recompute = recomputed; }, model);
  const auto* llama = std::get_if<LlamaConfig>(&model);
  const bool has_experts = llama && llama->has_experts();
  check(!config.cuda_graph || !has_experts,
        "cuda_graph: tokens are routed to experts on the host, which a captured pass cannot do; leave cuda_graph out");
  check(recomputed == 0 || !has_experts,
        "model.recompute: layers with experts also add to the load-balancing loss, so they are not computed again; ",
        "leave it out");
  return model;
}

// tokenizer_path(). A resumed run with a character vocabulary uses its saved tokenizer.
std::string tokenizer_of_run(const GptConfig& config) {
  const std::string path = tokenizer_path(config), checkpoint = continued_checkpoint(config);
  const bool of_text = path.empty() || path == data::kCharacters;
  return of_text && !checkpoint.empty() && data::has_tokenizer(checkpoint) ? checkpoint : path;
}

std::map<std::string, std::string> companions_of(const GptConfig& config) {
  std::map<std::string, std::string> files;
  const auto add = [&](const char* name, int64_t most_mib = 16) {
    const auto path = std::filesystem::path(config.init_weights) / name;
    if (std::filesystem::is_regular_file(path)) files[name] = read_text_file(path.string(), most_mib, "");
  };
  if (config.init_weights.empty()) return files;
  add("generation_config.json");
  if (tokenizer_path(config) != config.init_weights) return files;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}) add(name);
  add("tokenizer.json", 1024);  // has parts that Godwit does not read, such as the post-processor
  return files;
}

}  // namespace

std::shared_ptr<const data::Tokenizer> tokenizer_of(const GptConfig& config) {
  const std::string path = tokenizer_path(config);
  return path.empty() || path == data::kCharacters ? nullptr : data::load_tokenizer(path);
}

CausalLMConfig settings_of_weights(const GptConfig& config) {
  const std::filesystem::path folder = config.init_weights;
  std::error_code ignored;
  check(!std::filesystem::is_regular_file(folder, ignored), config.init_weights,
        ": is a file; --init-weights expects the folder of a model");
  check(!std::filesystem::exists(folder / "metrics.jsonl", ignored), config.init_weights,
        ": is the folder of a run; its model is in ", (folder / "model").string());
  return read_causal_lm_config(config.init_weights);
}

std::string tokenizer_notice(const GptConfig& config, const data::Tokenizer& tokenizer) {
  if (config.init_weights.empty() || !data::has_tokenizer(config.init_weights)) return "";
  try {
    if (data::load_tokenizer(config.init_weights)->fingerprint() == tokenizer.fingerprint()) return "";
  } catch (const Error&) {  // a tokenizer that is not supported cannot be compared
    return "";
  }
  return other_tokenizer_notice(config.init_weights, "the " + tokenizer.name());
}

void check_vocabulary(const GptConfig& config, const data::Tokenizer& tokenizer, const CausalLMConfig& model) {
  const int64_t outputs = sizes_of(model).vocab_size;
  check(tokenizer.size() <= outputs, "the tokenizer has ", tokenizer.size(), " tokens, but ", config.init_weights,
        " has ", outputs, " (vocab_size); use the tokenizer of the weights");
}

std::shared_ptr<const GptData> load_gpt_data(const GptConfig& config) {
  // Reads the settings first, because the text may be long.
  const CausalLMConfig sizes =
      config.init_weights.empty() ? config.model : settings_of_weights(config);
  const std::string path = text_or_bible(config.data.path);
  auto data = std::make_shared<GptData>();
  data->tokens = data::load_token_data({.path = path,
                                        .valid = config.data.valid,
                                        .tokenizer = tokenizer_of_run(config),
                                        .needs_tokenizer = !config.init_weights.empty(),
                                        .valid_fraction = config.data.valid_fraction});
  check(data->tokens.tokenizer != nullptr, path, ": the tokenizer of these shards is not known; name it with ",
        "--tokenizer PATH");
  data->model = model_config(config, *data->tokens.tokenizer, sizes);
  data->companions = companions_of(config);
  const auto count = [](const data::TokenStream& tokens) { return std::to_string(tokens.size()) + " tokens"; };
  data->notes = {
      {"tokenizer", data->tokens.tokenizer->name()},
      {"training", path + ": " + count(data->tokens.train)},
      {"validation", (config.data.valid.empty() ? path : config.data.valid) + ": " + count(data->tokens.valid)}};
  for (const std::string& file : data->tokens.of_test)
    data->notes.push_back({"not used", file + ": by its name it is for tests"});
  return data;
}

}  // namespace godwit::apps
