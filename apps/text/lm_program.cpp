// The options of train_lm with their defaults and checks.
#include <filesystem>

#include "apps/text/lm_config.h"
#include "apps/text/lm_data.h"
#include "apps/text/lm_task.h"
#include "apps/text/notices.h"
#include "engine/check.h"

namespace godwit::apps {
namespace {

constexpr const char* kLmPurpose =
    R"(Trains an LSTM language model with N workers (data parallelism). Each worker computes gradients on
its own streams of text. The workers exchange gradients, or one bit per parameter, during the
backward pass. Examples:

  ./train_lm --optimizer birder --nodes 8
  ./train_lm --data PTB_DIR --model lstm_medium --epochs 39
  ./train_lm --data TEXT_FILE --set data.vocab_size=20000

PTB_DIR contains ptb.train.txt, ptb.valid.txt and ptb.test.txt, or train.txt, valid.txt and
test.txt.

)";

constexpr const char* kLmResults = R"(
Results go to the run directory: config.json (every option except run_dir; --config with this file
repeats the run), metrics.jsonl (one object per logged step and per evaluation; losses are in nats
per token), vocab.txt (the words), weights.safetensors (the final weights).
)";

ConfigPtr lm_defaults(const Lookup& lookup) {
  auto config = std::make_shared<LmConfig>();
  if (const std::string name = lookup("model.name"); !name.empty()) {
    config->model_name = name;
    config->model = lstm_config(name);
  }
  if (!lookup("data.path").empty()) config->data.words = "spaces";
  // Both determine the applicable options.
  config->data.vocab = lookup("data.vocab");
  config->init_weights = lookup("init_weights");
  return config;
}

// With a beta of 0.9 and more, methods with `beta` hardly train an LSTM in a few epochs ("Decay rate" in
// docs/methods/birder.md).
OptimizerConfig lm_optimizer_defaults(const CommonConfig&, const std::string& name) {
  OptimizerConfig config = name;
  if (config.has("beta")) config.set("beta", 0.5);
  if (config.has("weight_decay")) config.set("weight_decay", 1.2e-6);
  if (config.has("decay_norm_and_bias")) config.set("decay_norm_and_bias", false);
  if (config.method().relative_lr) return config;
  config.set("lr", config.name() == "sgd" ? 20.0 : config.name() == "sgdm" ? 2.0 : config.has("beta") ? 8e-3 : 2e-3);
  return config;
}

TaskMaker load_lm(const std::shared_ptr<const CommonConfig>& config, Progress* progress) {
  const auto own = std::static_pointer_cast<const LmConfig>(config);
  const std::shared_ptr<const LmData> data = load_lm_data(*own);
  const std::string effect = own->data.words == "spaces" ? "words keep them" : "they are left out";
  print_notices(progress, {data->invalid.notice(effect + "; convert the text to UTF-8")});
  return [own, data](Communicator& comm) { return std::make_unique<LmTask>(*own, *data, comm); };
}

}  // namespace

void LmConfig::check_together() const {
  check(validation == 0, "validation is ", validation, ", but train_lm always evaluates a validation text: data.valid");
  check(data.test.empty() || !data.path.empty(), "data.test requires data.path");
  check(data.valid.empty() || !data.path.empty(), "data.valid requires data.path");
}

void LmConfig::describe(OptionList& list) {
  list.section = "model";
  list.add("model.name", model_name, "network, which sets the defaults of the other keys of model")
      .with_flag("--model")
      .with_choices(lstm_names());
  list.prefix = "model.";
  constexpr Range kDropout{0, 1, false, true};
  list.add("embedding", model.embedding, "width of the word embeddings", {1, 1 << 16});
  list.add("hidden", model.hidden, "width of the LSTM layers", {1, 1 << 16});
  list.add("layers", model.layers, "number of LSTM layers", {1, 64});
  list.add("tied", model.tied,
           "use the embedding's weights in the output layer; the last LSTM layer then has the embedding's width");
  list.add("input_dropout", model.input_dropout, "dropout probability of the embeddings", kDropout);
  list.add("hidden_dropout", model.hidden_dropout, "dropout probability between layers", kDropout);
  list.add("output_dropout", model.output_dropout, "dropout probability of the last layer's output", kDropout);
  list.add("weight_dropout", model.weight_dropout, "dropout probability of the recurrent weights", kDropout);
  list.add("init_range", model.init_range, "largest magnitude of the uniform initial embeddings and output weights",
           kNotNegative);
  list.add("recurrent_range", model.recurrent_range,
           "largest magnitude of the uniform initial LSTM weights; 0: 1/√width", kNotNegative);
  list.prefix = "";
  list.add("init_weights", init_weights, "safetensors file to start from")
      .with_flag("--init-weights", "FILE")
      .differs_by_host();

  list.section = "data", list.prefix = "data.";
  list.add("path", data.path, "folder or text file")
      .with_shown_default("the packaged King James Bible")
      .with_flag("--data", "PATH")
      .differs_by_host();
  list.add("valid", data.valid, "validation file; empty: the folder's file, or held-out documents").differs_by_host();
  list.add("test", data.test, "test file; empty: the folder's file, or held-out documents").differs_by_host();
  list.add("vocab", data.vocab,
           "vocabulary, one word per line; empty: vocab.txt next to the initial weights, or built from the training "
           "text")
      .with_flag("--vocab", "FILE")
      .differs_by_host();
  list.add("vocab_size", data.vocab_size,
           "largest number of words in a built vocabulary, which keeps the most frequent words; if only the validation "
           "or test text has words outside the vocabulary, one word fewer than in the training text",
           {3, 1e8})
      .ignored_if(!data.vocab.empty() || !init_weights.empty(),
                  "the run uses the vocabulary of " +
                      std::string(data.vocab.empty() ? "the initial weights" : "--vocab") + "; leave it out");
  list.add("words", data.words, "split lines into words: at spaces, or at spaces and punctuation, in lower case")
      .with_choices({"spaces", "basic"});
  list.add("length", data.length, "tokens per stream in a batch (steps of back-propagation through time)", {1, 1 << 16})
      .with_flag("--length");
  std::error_code ignored;
  list.add("hold_out", data.hold_out,
           "one text file: hold out every N-th document for validation, and every N-th of the others for the test",
           {2, 1e9})
      .ignored_if(!data.valid.empty() || std::filesystem::is_directory(data.path, ignored),
                  "documents are held out of a text file without data.valid only; leave it out");

  list.prefix = "";
  describe_common(list, {.unit = "streams of text",
                         .eval_batch = "streams in an evaluation, over all workers; 0: 20",
                         .seed = "seed of initialization, dropout and quantization",
                         .run_dir = "runs/<model>-<optimizer>-<date>-<time>"});
  for (Option& option : list)
    if (option.name == "validation") option.help = "not available, because data.valid is always evaluated";
}

const Program& lm_program() {
  static const Program program{
      .name = "train_lm",
      .purpose = kLmPurpose,
      .results = kLmResults,
      .default_optimizer = "adamw",
      .defaults = lm_defaults,
      .optimizer_defaults = lm_optimizer_defaults,
      .load = load_lm,
  };
  return program;
}

}  // namespace godwit::apps
