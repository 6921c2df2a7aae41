// The options of train_bert with their defaults and checks.
#include <filesystem>

#include "apps/config/saved_config.h"
#include "apps/text/notices.h"
#include "apps/text/recompute_option.h"
#include "apps/text/text_config.h"
#include "apps/text/text_data.h"
#include "apps/text/text_task.h"
#include "engine/check.h"
#include "models/bert.h"

namespace godwit::apps {
namespace {

constexpr const char* kBertPurpose =
    R"(Trains a BERT with N workers (data parallelism). Each worker computes gradients on its own text. The
workers exchange gradients, or one bit per parameter, during the backward pass. Examples:

  ./train_bert --optimizer birder --nodes 8
  ./train_bert --task squad --init-weights MINILM_DIR --data SQUAD_DIR --epochs 2
  ./train_bert --task classify --init-weights runs/RUN/model --data SST2_DIR --batch 32

pretrain: masked words and next sentences of a text file. squad: questions about paragraphs;
SQUAD_DIR contains train-v1.1.json and dev-v1.1.json (or .gz). classify: sentences; SST2_DIR
contains train.tsv and dev.tsv.

)";

constexpr const char* kBertResults = R"(
Results go to the run directory: config.json (every option except run_dir; --config with this file
repeats the run), metrics.jsonl (one object per logged step and per evaluation), model/ (the final
weights in HuggingFace's format); with squad, predictions.json and nbest_predictions.json.
)";

ConfigPtr bert_defaults(const Lookup& lookup) {
  auto config = std::make_shared<TextConfig>();
  if (const std::string task = lookup("task"); !task.empty()) config->task = task;
  // These determine the applicable options.
  if (const std::string name = lookup("model.name"); !name.empty()) config->model.name = name;
  config->init_weights = lookup("init_weights");
  config->epochs = config->task == "squad" ? 2 : 3;
  config->batch = config->task == "pretrain" ? 4 : config->task == "squad" ? 8 : 16;
  config->data.length = config->task == "squad" ? 384 : 128;
  return config;
}

// Learning rates: from the Birder and 0/1 Adam papers; for classification, from BERT's fine-tuning. Rates of methods
// with relative_lr were measured in pre-training, and are lower for fine-tuning.
OptimizerConfig bert_optimizer_defaults(const CommonConfig& common, const std::string& name) {
  const std::string& task = static_cast<const TextConfig&>(common).task;
  OptimizerConfig config = name;
  if (config.has("weight_decay") && !config.method().l2_regularization) config.set("weight_decay", 0.01);
  if (config.has("decay_norm_and_bias")) config.set("decay_norm_and_bias", false);
  if (config.has("beta")) config.set("beta", 0.9);
  if (config.method().relative_lr) config.set("lr", task == "pretrain" ? 1e-2 : 1e-3);
  else if (config.name() != "sgd" && config.name() != "sgdm")
    config.set("lr", task == "pretrain" ? 4e-4 : task == "squad" ? 1e-4 : 5e-5);
  return config;
}

// Whether config.json is next to the initial weights.
bool has_config(const TextConfig& config) {
  std::error_code ignored;
  const std::string folder = weights_folder(config);
  return !folder.empty() && std::filesystem::exists(folder + "/config.json", ignored);
}

TaskMaker load_bert(const std::shared_ptr<const CommonConfig>& config, Progress* progress) {
  const auto own = described_by_checkpoint(std::static_pointer_cast<const TextConfig>(config));
  check(own->task == "pretrain" || !own->data.path.empty(), "task ", own->task, " needs --data, a folder with ",
        own->task == "squad" ? "train-v1.1.json and dev-v1.1.json" : "train.tsv and dev.tsv");
  const std::shared_ptr<const TextData> data = load_text_data(*own, progress);
  print_notices(progress, {tokenizer_notice(*own, data->tokenizer),
                           data->invalid.notice("they are left out; convert the text to UTF-8")});
  return [own, data](Communicator& comm) { return make_text_task(*own, *data, comm); };
}

}  // namespace

void TextConfig::check_together() const {
  check(data.test.empty() || !data.path.empty(), "data.test requires data.path");
  check(model.dropout.size() <= 2, "model.dropout has ", model.dropout.size(),
        " values; give one for hidden states and, if it differs, one for attention");
}

void TextConfig::describe(OptionList& list) {
  list.section = "model";
  list.add("task", task, "training task").with_flag("--task", "TASK").with_choices({"pretrain", "squad", "classify"});
  std::vector<std::string> models = bert_names();
  models.insert(models.begin(), "auto");
  list.add("model.name", model.name, "network; auto: from the folder of the initial weights, otherwise bert_mini")
      .with_flag("--model")
      .with_choices(models)
      .only_if(model.name == "auto" || !has_config(*this),
               "config.json of the initial weights determines the network; use --model auto");
  list.add("model.dropout", model.dropout,
           "dropout probability of hidden states, or HIDDEN,ATTENTION for both; empty: the model's defaults",
           {0, 1, false, true});
  list.prefix = "model.";
  add_recompute(list, model.recompute);
  list.prefix = "";
  list.add("init_weights", init_weights, "HuggingFace folder or safetensors file to start from")
      .with_flag("--init-weights", "PATH")
      .differs_by_host();

  list.section = "data", list.prefix = "data.";
  const auto only_for = [&](const char* only, Option& option) {
    option.only_if(task == only, "task " + task + " does not read " + option.name + ", only " + only + " does");
  };
  list.add("path", data.path, "folder or training file")
      .with_shown_default("the packaged King James Bible")
      .with_flag("--data", "PATH")
      .differs_by_host();
  list.add("test", data.test, "evaluation file; empty: in the folder data.path, or held-out documents (pretrain)")
      .differs_by_host()
      .ignored_if(validation > 0 && task != "pretrain",
                  "with validation, held-out training samples are evaluated; leave data.test or validation out");
  list.add("vocab", data.vocab,
           "vocab.txt or tokenizer.json; empty: the file of the initial weights, or a trained vocabulary")
      .with_flag("--vocab", "FILE")
      .differs_by_host();
  const bool trained = data.vocab.empty() && init_weights.empty();
  const std::string given = "the run uses the vocabulary of " +
                            std::string(data.vocab.empty() ? "the initial weights" : "--vocab") + "; leave it out";
  list.add("vocab_size", data.vocab_size, "largest number of tokens in a trained vocabulary", {8, 1e6})
      .ignored_if(!trained, given);
  list.add("alphabet", data.alphabet,
           "largest number of characters in a trained vocabulary, which keeps the most frequent ones", {1, 1e6})
      .ignored_if(!trained, given);
  list.add("letter_case", data.letter_case,
           "letter case of the text; auto: as in the weights' tokenizer, otherwise lower")
      .with_choices({"auto", "lower", "keep"});
  list.add("length", data.length, "largest number of tokens per sample; default of squad: 384", {8, 1 << 16})
      .with_flag("--length");
  list.add("test_limit", data.test_limit, "squad, classify: largest number of evaluated samples; 0: all", kNotNegative)
      .only_if(task != "pretrain", "task pretrain does not read data.test_limit");
  only_for("pretrain", list.add("sentences", data.sentences, "pretrain: a sentence per line, or split at . ! ?")
                           .with_choices({"lines", "split"}));
  only_for("pretrain",
           list.add("hold_out", data.hold_out, "pretrain: hold out every N-th document for evaluation", {2, 1e9})
               .ignored_if(!data.test.empty(), "data.test is evaluated; leave one of them out"));
  only_for("pretrain",
           list.add("masked", data.masked, "pretrain: fraction of the tokens to predict", {0, 1, true, true}));
  only_for("pretrain", list.add("short_samples", data.short_samples,
                                "pretrain: fraction of the samples that are shorter than length", kFraction));
  only_for("squad",
           list.add("doc_stride", data.doc_stride, "squad: tokens between the starts of two windows", kAtLeastOne));
  only_for("squad", list.add("max_question", data.max_question, "squad: largest number of tokens of a question",
                             kAtLeastOne));
  only_for("squad", list.add("max_answer", data.max_answer, "squad: largest number of tokens of an answer",
                             kAtLeastOne));
  only_for("squad", list.add("n_best", data.n_best, "squad: number of answers written per question", {1, 1000}));
  list.add("window", data.window, "number of batches whose samples are sorted by length together", {1, 1 << 20});
  list.add("prefetch", data.prefetch, "batches prepared in advance", {1, 1024});
  list.add("workers", data.workers,
           "loader threads per worker; 0: at most 2 on the CPU, all of the worker's threads with a GPU", {0, 256})
      .differs_by_host();

  list.prefix = "";
  describe_common(list, {.unit = "samples",
                         .eval_batch = "samples per worker in an evaluation; 0: the larger of 32 and --batch",
                         .seed = "seed of initialization, shuffling, masking, dropout and quantization",
                         .run_dir = "runs/<model>-<task>-<optimizer>-<date>-<time>"});
}

const Program& text_program() {
  static const Program program{
      .name = "train_bert",
      .purpose = kBertPurpose,
      .results = kBertResults,
      .default_optimizer = "adamw",
      .defaults = bert_defaults,
      .optimizer_defaults = bert_optimizer_defaults,
      .load = load_bert,
  };
  return program;
}

}  // namespace godwit::apps
