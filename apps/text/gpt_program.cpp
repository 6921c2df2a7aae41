// The options of train_gpt with their defaults and checks.
#include "apps/config/saved_config.h"
#include "apps/text/gpt_config.h"
#include "apps/text/gpt_data.h"
#include "apps/text/gpt_generate.h"
#include "apps/text/gpt_task.h"
#include "apps/text/notices.h"
#include "apps/text/recompute_option.h"
#include "engine/check.h"

namespace godwit::apps {
namespace {

constexpr const char* kGptPurpose =
    R"(Trains a GPT-2, LLaMA or mixture of experts with N workers (data parallelism). Each worker computes
gradients on its own blocks of text. The workers exchange gradients, or one bit per parameter,
during the backward pass. Examples:

  ./train_gpt --optimizer birder --nodes 8
  ./train_gpt --config configs/shakespeare/nano.json --data shakespeare.txt
  ./train_gpt --model llama_nano --optimizer birder --nodes 8
  ./train_gpt --init-weights MODEL_DIR --data TEXTS_DIR --context 256 --batch 4
  ./train_gpt --init-weights runs/RUN/model --generate "In the beginning"

MODEL_DIR is a HuggingFace folder of a GPT-2, LLaMA, Mistral, Qwen2 or Mixtral. TEXTS_DIR contains
text files, JSONL files or token shards.

)";

constexpr const char* kGptResults = R"(
Results go to the run directory: config.json (every option except run_dir; --config with this file
repeats the run), metrics.jsonl (one object per logged step and per evaluation; losses are in nats
per token), samples.txt (generated text), model/ (final weights and tokenizer in HuggingFace's
format).
)";

ConfigPtr gpt_defaults(const Lookup& lookup) {
  auto config = std::make_shared<GptConfig>();
  if (const std::string name = lookup("model.name"); !name.empty()) config->model_name = name;
  if (config->model_name != "auto") config->model = causal_lm_config(config->model_name);
  config->sizes = GptSizes(config->model);
  config->init_weights = lookup("init_weights");  // determines the applicable options
  return config;
}

OptimizerConfig gpt_optimizer_defaults(const CommonConfig&, const std::string& name) {
  OptimizerConfig config = name;
  if (config.has("weight_decay") && !config.method().l2_regularization) config.set("weight_decay", 0.1);
  if (config.has("decay_norm_and_bias")) config.set("decay_norm_and_bias", false);
  if (config.has("beta2")) config.set("beta2", 0.99);
  // The methods with `beta` are Birder and SoftSignSGD.
  if (config.name() != "sgd" && config.name() != "sgdm" && !config.method().relative_lr)
    config.set("lr", config.has("beta") ? 2e-3 : 1e-3);
  return config;
}

TaskMaker load_gpt(const std::shared_ptr<const CommonConfig>& config, Progress* progress) {
  const auto own = described_by_checkpoint(std::static_pointer_cast<const GptConfig>(config));
  if (!own->generate.prompt.empty())
    return [own](Communicator& comm) {
      if (comm.rank != 0) return nullptr;
      const auto busy = comm.world->control()->busy();  // the other ranks wait
      continue_prompt(*own);
      return nullptr;
    };
  const std::shared_ptr<const GptData> data = load_gpt_data(*own);
  print_notices(progress, {tokenizer_notice(*own, *data->tokens.tokenizer),
                           data->tokens.invalid.notice(data::kInvalidAreReplaced)});
  return [own, data](Communicator& comm) { return std::make_unique<GptTask>(*own, *data, comm); };
}

}  // namespace

void GptConfig::check_together() const {
  check(validation == 0, "validation is ", validation,
        ", but train_gpt always evaluates a validation text: data.valid");
  check(data.valid.empty() || !data.path.empty(), "data.valid requires data.path");
  check(generate.prompt.empty() || !init_weights.empty(),
        "--generate requires --init-weights DIR, the folder of a model");
  check_sample_options(generate.sample);
}

void GptConfig::describe(OptionList& list) {
  list.section = "model";
  std::vector<std::string> models = causal_lm_names();
  models.insert(models.begin(), "auto");
  list.add("model.name", model_name, "network; auto: from the folder of the initial weights, otherwise gpt2_nano")
      .with_flag("--model")
      .with_choices(models)
      .only_if(init_weights.empty() || model_name == "auto", "the initial weights determine the network; leave it out");
  list.prefix = "model.";
  const auto* llama = std::get_if<LlamaConfig>(&model);
  const auto add_size = [&](const char* name, auto& size, const char* help, Range range, const char* only = nullptr,
                            bool applies = true) {
    const std::string field = std::string("model.") + name;
    auto& option = list.add(name, size, help, range);
    option.only_if(init_weights.empty(), "the initial weights determine " + field + "; leave it out");
    if (only) option.only_if(applies, field + " is a size of " + only + "; choose one with --model, or leave it out");
    if (!applies) option.with_shown_default("the model's");
  };
  add_size("n_layer", sizes.n_layer, "number of layers", {1, 1 << 12});
  add_size("n_head", sizes.n_head, "attention heads per layer", {1, 1 << 12});
  add_size("n_embd", sizes.n_embd, "width of the hidden states", {1, 1 << 16});
  const char* const kLlama = "LLaMA, Mistral, Qwen2 and Mixtral";
  add_size("n_kv_head", sizes.n_kv_head, "heads of keys and values, a divisor of n_head", {1, 1 << 12}, kLlama, llama);
  add_size("n_inner", sizes.n_inner, "width of the feed-forward layers", {1, 1 << 20}, kLlama, llama);
  add_size("rope_theta", sizes.rope_theta, "base of the rotary wavelengths", {1, 1e12, true}, kLlama, llama);
  const bool experts = llama && llama->has_experts();
  add_size("n_experts", sizes.n_experts, "experts per layer", {1, 1 << 12}, "Mixtral", experts);
  add_size("n_experts_per_token", sizes.n_experts_per_token, "experts per token", {1, 1 << 12}, "Mixtral", experts);
  add_size("aux_loss", sizes.aux_loss, "weight of the load-balancing loss in training", kNotNegative, "Mixtral",
           experts);
  list.add("dropout", dropout, "dropout probability of the attention; GPT-2: also of embeddings and residual outputs",
           {0, 1, false, true});
  add_recompute(list, recompute);
  list.prefix = "";
  list.add("init_weights", init_weights, "HuggingFace folder to start from")
      .with_flag("--init-weights", "DIR")
      .differs_by_host();

  list.section = "data", list.prefix = "data.";
  list.add("path", data.path, "text, JSONL or token shards: a file or a folder")
      .with_shown_default("the packaged King James Bible")
      .with_flag("--data", "PATH")
      .differs_by_host();
  list.add("valid", data.valid,
           "validation file or folder; empty: shards named *val* or texts named valid in the folder, or the last "
           "data.valid_fraction of the tokens")
      .differs_by_host();
  list.add("tokenizer", data.tokenizer,
           "characters, or the file or folder of a tokenizer; empty: the tokenizer of the weights or shards, or "
           "characters for a new network")
      .with_flag("--tokenizer", "PATH")
      .differs_by_host();
  list.add("valid_fraction", data.valid_fraction, "fraction of the tokens for validation, if data.valid is empty",
           {0, 1, true, true})
      .ignored_if(!data.valid.empty(), "data.valid is the validation text; leave one of them out");
  list.add("context", data.context, "tokens per block; also the number of positions of a new model", {1, 1 << 20})
      .with_flag("--context");

  list.section = "generation", list.prefix = "generate.";
  list.add("prompt", generate.prompt, "continue this text instead of training; needs --init-weights")
      .with_flag("--generate", "TEXT")
      .with_empty_message(
          "the prompt is empty; give the beginning of a text, for example --generate \"In the beginning\"");
  list.add("tokens", generate.tokens, "number of tokens of the continuation, or of the sample at an evaluation",
           {0, 1e9});
  list.add("temperature", generate.sample.temperature,
           "divisor of the logits in sampling; 0: always the most probable token", kNotNegative)
      .with_flag("--temperature");
  list.add("top_k", generate.sample.top_k, "draw from the k most probable tokens; 0: all", {0, 1e9})
      .with_flag("--top-k");
  list.add("top_p", generate.sample.top_p,
           "draw from the smallest set of most probable tokens with this total probability", kAboveZeroToOne)
      .with_flag("--top-p");

  list.section = "training", list.prefix = "";
  list.add("evaluate_every", evaluate_every, "steps between evaluations; 0: at the end of every epoch", kNotNegative);
  describe_common(list, {.unit = "blocks",
                         .eval_batch = "blocks per worker in an evaluation; 0: the larger of 16 and --batch",
                         .seed = "seed of initialization, shuffling, dropout, samples and quantization",
                         .run_dir = "runs/<model>-<optimizer>-<date>-<time>"});
  const auto generates = [](const std::string& name) {
    for (const char* read : {"init_weights", "data.tokenizer", "dtype", "seed", "threads", "timeout_s"})
      if (name == read) return true;
    return name.starts_with("generate.");
  };
  for (Option& option : list) {
    option.ignored_if(!generate.prompt.empty() && !generates(option.name), "--generate does not train; leave it out");
    if (option.name == "validation") option.help = "not available, because data.valid is always evaluated";
  }
}

const Program& gpt_program() {
  static const Program program{
      .name = "train_gpt",
      .purpose = kGptPurpose,
      .results = kGptResults,
      .default_optimizer = "adamw",
      .defaults = gpt_defaults,
      .optimizer_defaults = gpt_optimizer_defaults,
      .load = load_gpt,
  };
  return program;
}

}  // namespace godwit::apps
