// What train_bert adds to the common settings, and their defaults and checks.
#include <algorithm>

#include "apps/text/text_config.h"
#include "apps/text/text_data.h"
#include "apps/text/text_task.h"
#include "engine/check.h"
#include "models/bert.h"

namespace godwit::apps {
namespace {

constexpr const char* kPurpose =
    R"(Trains a BERT with N workers: each holds a replica, computes gradients on its own text and exchanges
them, or one bit per parameter, while the backward pass still runs. Examples:

  ./train_bert --optimizer birder --nodes 8
  ./train_bert --task squad --init-weights MINILM_DIR --data SQUAD_DIR --epochs 2
  ./train_bert --task classify --init-weights runs/RUN/model --data SST2_DIR --batch 32

pretrain: masked words and next sentences of a text file. squad: questions about paragraphs; DIR
holds train-v1.1.json and dev-v1.1.json (or .gz). classify: sentences; DIR holds train.tsv, dev.tsv.

)";

constexpr const char* kResults = R"(
Results go to the run directory: config.json (every setting except run_dir; giving it to --config
repeats the run), metrics.jsonl (one object per logged step and per evaluation), model/ (the final
weights as HuggingFace reads them); with squad, predictions.json and nbest_predictions.json.
)";

std::vector<std::string> tasks() { return {"pretrain", "squad", "classify"}; }
std::vector<std::string> letter_cases() { return {"auto", "lower", "keep"}; }
std::vector<std::string> sentence_rules() { return {"lines", "split"}; }
std::vector<std::string> models() {
  std::vector<std::string> names = bert_names();
  names.insert(names.begin(), "auto");
  return names;
}

#define GODWIT_AT(member) [](CommonConfig& c) -> SettingRef { return &static_cast<TextConfig&>(c).member; }

std::vector<Setting> make_settings() {
  std::vector<Setting> rows = {
      {"model", "task", "--task", GODWIT_AT(task), "", kAny, tasks},
      {"model", "model.name", "--model", GODWIT_AT(model.name), "", kAny, models},
      {"model", "model.dropout", "", GODWIT_AT(model.dropout), "of hidden states[, of attention] [the model's]",
       kBelowOne},
      {"model", "init_weights", "--init-weights", GODWIT_AT(init_weights), "HuggingFace folder, or safetensors file",
       kAny, nullptr, "DIR"},
      {"data", "data.path", "--data", GODWIT_AT(data.path), "folder or training file [the packaged King James Bible]",
       kAny, nullptr, "DIR"},
      {"data", "data.test", "", GODWIT_AT(data.test), "evaluation file, where data.path is a file", kAny},
      {"data", "data.vocab", "--vocab", GODWIT_AT(data.vocab),
       "vocab.txt or tokenizer.json [that of the weights, else trained]", kAny, nullptr, "FILE"},
      {"data", "data.vocab_size", "", GODWIT_AT(data.vocab_size), "tokens of a vocabulary that is trained", {8, 1e6}},
      {"data", "data.alphabet", "", GODWIT_AT(data.alphabet), "characters it has at most, the most frequent", {1, 1e6}},
      {"data", "data.letter_case", "", GODWIT_AT(data.letter_case), "auto: as the weights' tokenizer, else lower", kAny,
       letter_cases},
      {"data", "data.length", "--length", GODWIT_AT(data.length), "tokens of a sample at most; squad: 384", {8, 1 << 16}},
      {"data", "data.test_limit", "", GODWIT_AT(data.test_limit), "squad, classify: samples evaluated; 0: all",
       kNotNegative},
      {"data", "data.sentences", "", GODWIT_AT(data.sentences), "pretrain, a sentence is a line, or split at . ! ?", kAny,
       sentence_rules},
      {"data", "data.hold_out", "", GODWIT_AT(data.hold_out), "pretrain: one of so many documents is evaluated on",
       {2, 1e9}},
      {"data", "data.masked", "", GODWIT_AT(data.masked), "pretrain: fraction of the tokens", {0, 1, true, true}},
      {"data", "data.short_samples", "", GODWIT_AT(data.short_samples), "pretrain: fraction below the full length",
       kFraction},
      {"data", "data.doc_stride", "", GODWIT_AT(data.doc_stride), "squad: tokens from window to window", kAtLeastOne},
      {"data", "data.max_question", "", GODWIT_AT(data.max_question), "squad: tokens", kAtLeastOne},
      {"data", "data.max_answer", "", GODWIT_AT(data.max_answer), "squad: tokens", kAtLeastOne},
      {"data", "data.n_best", "", GODWIT_AT(data.n_best), "squad: answers written for a question", {1, 1000}},
      {"data", "data.window", "", GODWIT_AT(data.window), "batches sorted by length together", {1, 1 << 20}},
      {"data", "data.prefetch", "", GODWIT_AT(data.prefetch), "batches prepared ahead", {1, 1024}},
      {"data", "data.workers", "", GODWIT_AT(data.workers), "that prepare them; 0: up to 2, with a GPU all", {0, 256}},
  };
  const std::vector<Setting> common =
      common_settings({.unit = "samples",
                       .eval_batch = "per worker; 0: 32, or --batch where that is more",
                       .seed = "of initialisation, shuffling, masking, dropout and quantisation",
                       .run_dir = "results [runs/<model>-<task>-<optimizer>-<date>-<time>]"});
  rows.insert(rows.end(), common.begin(), common.end());
  return rows;
}

#undef GODWIT_AT

ConfigPtr defaults(const std::function<std::string(const std::string&)>& chosen) {
  auto config = std::make_shared<TextConfig>();
  if (const std::string task = chosen("task"); !task.empty()) config->task = task;
  config->epochs = config->task == "squad" ? 2 : 3;
  config->batch = config->task == "squad" ? 8 : 16;
  config->data.length = config->task == "squad" ? 384 : 128;
  const std::string optimizer = chosen("optimizer.name");
  // Birder's update does not grow with the gradient, and clipping would keep its exchange from the backward pass.
  config->clip.norm = optimizer.empty() || !communicates_itself(optimizer) ? 1 : 0;
  return config;
}

// Of the Birder and 0/1 Adam papers; fine-tuning of a classifier as in BERT's own.
OptimizerConfig bert_optimizer_defaults(const CommonConfig& common, const std::string& name) {
  const std::string& task = static_cast<const TextConfig&>(common).task;
  OptimizerConfig config = optimizer_defaults(name);
  config.weight_decay = 0.01;
  config.decay_norm_and_bias = false;
  config.beta = 0.9;
  if (name != "sgd" && name != "sgdm") config.lr = task == "pretrain" ? 4e-4 : task == "squad" ? 1e-4 : 5e-5;
  return config;
}

std::string unread(const CommonConfig& common, const Setting& setting) {
  const std::string& task = static_cast<const TextConfig&>(common).task;
  const auto only = [&](std::initializer_list<const char*> keys, const char* of) {
    const bool listed = std::find(keys.begin(), keys.end(), setting.path) != keys.end();
    return listed && task != of ? "task " + task + " does not read " + setting.path + ", only " + of + " does" : "";
  };
  const std::string why = only({"data.sentences", "data.hold_out", "data.masked", "data.short_samples"}, "pretrain");
  if (!why.empty()) return why;
  if (task == "pretrain" && setting.path == "data.test_limit") return "task pretrain does not read data.test_limit";
  return only({"data.doc_stride", "data.max_question", "data.max_answer", "data.n_best"}, "squad");
}

void check_together(const CommonConfig& common) {
  const TextConfig& config = static_cast<const TextConfig&>(common);
  check(config.task == "pretrain" || !config.data.path.empty(), "task ", config.task, " needs --data, a folder with ",
        config.task == "squad" ? "train-v1.1.json and dev-v1.1.json" : "train.tsv and dev.tsv");
  check(config.data.test.empty() || !config.data.path.empty(), "data.test is given without data.path");
  check(config.model.dropout.size() <= 2, "model.dropout has ", config.model.dropout.size(),
        " values; give one for hidden states and, where it differs, one for attention");
}

TaskMaker load(const std::shared_ptr<const CommonConfig>& config, Progress* progress) {
  const auto own = std::static_pointer_cast<const TextConfig>(config);
  const std::shared_ptr<const TextData> data = load_text_data(*own, progress);
  return [own, data](Communicator& comm) { return make_text_task(*own, *data, comm); };
}

}  // namespace

const Program& text_program() {
  static const Program program{
      .name = "train_bert",
      .purpose = kPurpose,
      .results = kResults,
      .default_optimizer = "adamw",
      .settings = make_settings(),
      .of_the_host = {"data.path", "data.test", "data.vocab", "data.workers"},
      .defaults = defaults,
      .optimizer_defaults = bert_optimizer_defaults,
      .unread = unread,
      .check = check_together,
      .load = load,
  };
  return program;
}

}  // namespace godwit::apps
