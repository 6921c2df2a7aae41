#include "apps/text/gpt_data.h"

#include <utility>

#include "apps/text/default_text.h"
#include "apps/text/recompute_option.h"
#include "engine/check.h"

namespace godwit::apps {
namespace {

// data.tokenizer, or the folder of the initial weights if it has a tokenizer, or "".
std::string tokenizer_path(const GptConfig& config) {
  if (!config.data.tokenizer.empty()) return config.data.tokenizer;
  return !config.init_weights.empty() && data::has_tokenizer(config.init_weights) ? config.init_weights : "";
}

// Completes the settings of the initial weights, or of a new network, which gets positions for one block.
Gpt2Config model_config(const GptConfig& config, const data::Tokenizer& tokenizer, Gpt2Config model) {
  if (config.init_weights.empty()) {
    model.vocab_size = tokenizer.size();
    model.n_positions = config.data.context;
    const auto end = tokenizer.end_of_text();
    if (end) model.bos_token_id = model.eos_token_id = *end;
  } else {
    check(config.data.context <= model.n_positions, "blocks of ", config.data.context, " tokens, but ",
          config.init_weights, " has ", model.n_positions, " positions (n_positions); lower --context");
    check_vocabulary(config, tokenizer, model);
  }
  model.embd_pdrop = model.attn_pdrop = model.resid_pdrop = config.dropout;
  model.recompute = recomputed_layers(config.recompute, model.n_layer);
  model.seed = config.seed;
  if (config.dtype == "bf16") model.dtype = DType::bf16;
  check_gpt2_config(model);
  return model;
}

}  // namespace

std::shared_ptr<const data::Tokenizer> tokenizer_of(const GptConfig& config) {
  const std::string path = tokenizer_path(config);
  return path.empty() || path == data::kCharacters ? nullptr : data::load_tokenizer(path);
}

void check_vocabulary(const GptConfig& config, const data::Tokenizer& tokenizer, const Gpt2Config& model) {
  check(tokenizer.size() <= model.vocab_size, "the tokenizer has ", tokenizer.size(), " tokens, but ",
        config.init_weights, " has ", model.vocab_size, " (vocab_size); use the tokenizer of the weights");
}

std::shared_ptr<const GptData> load_gpt_data(const GptConfig& config) {
  // Before the text, which may be long.
  const Gpt2Config sizes = config.init_weights.empty() ? config.model : read_gpt2_config(config.init_weights);
  const std::string path = text_or_bible(config.data.path);
  auto data = std::make_shared<GptData>();
  data->tokens = data::load_token_data({.path = path,
                                        .valid = config.data.valid,
                                        .tokenizer = tokenizer_path(config),
                                        .valid_fraction = config.data.valid_fraction});
  check(data->tokens.tokenizer != nullptr, path, ": the tokenizer of these shards is not known; name it with ",
        "--tokenizer PATH");
  data->model = model_config(config, *data->tokens.tokenizer, sizes);
  const auto count = [](const data::TokenStream& tokens) { return std::to_string(tokens.size()) + " tokens"; };
  data->notes = {
      {"tokenizer", data->tokens.tokenizer->name()},
      {"training", path + ": " + count(data->tokens.train)},
      {"validation", (config.data.valid.empty() ? path : config.data.valid) + ": " + count(data->tokens.valid)}};
  return data;
}

}  // namespace godwit::apps
