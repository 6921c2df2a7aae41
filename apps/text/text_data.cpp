#include "apps/text/text_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <unordered_set>
#include <utility>

#include "apps/text/default_text.h"
#include "apps/text/recompute_option.h"
#include "data/hold_out.h"
#include "data/text/classification.h"
#include "data/text/corpus.h"
#include "data/text/pretraining.h"
#include "data/text/squad_features.h"
#include "engine/check.h"
#include "engine/context.h"
#include "engine/excerpt.h"
#include "models/pretrained.h"

namespace godwit::apps {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The training file: data.path, or the first existing file of `train` in this folder. The evaluation file: data.test,
// or the first existing file of `test`; not needed with validation.
std::pair<std::string, std::string> find_files(const TextConfig& config, const std::vector<std::string>& train,
                                               const std::vector<std::string>& test) {
  const TextDataConfig& options = config.data;
  const bool tests = config.validation == 0;
  std::error_code ignored;
  if (!fs::is_directory(options.path, ignored)) {
    check(!tests || !options.test.empty(), options.path, ": is a file; also set the evaluation file with ",
          "--set data.test=FILE");
    return {options.path, options.test};
  }
  const auto find = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (const fs::path path = fs::path(options.path) / name; exists(path.string())) return path.string();
    fail("data folder ", options.path, ": has no ", names.front());
  };
  return {find(train), tests && options.test.empty() ? find(test) : options.test};
}

std::string plural(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

data::TextReader sentences_of(const data::Corpus& corpus) {
  return [&corpus, i = int64_t{0}](std::string& text) mutable {
    if (i == corpus.sentences()) return false;
    text = corpus.sentence(i++);
    return true;
  };
}

data::TextReader texts_of(const std::vector<std::string>& texts) {
  return [&texts, i = size_t{0}](std::string& text) mutable {
    if (i == texts.size()) return false;
    text = texts[i++];
    return true;
  };
}

TextData with_tokenizer(const TextConfig& config, const data::TextReader& texts) {
  TextData data{.tokenizer = load_tokenizer(config, texts)};
  const TextTokenizer& tokenizer = data.tokenizer;
  const std::string from = tokenizer.vocabulary.empty() ? "trained on this text" : tokenizer.vocabulary;
  data.notes.push_back({"vocabulary", plural(tokenizer.pieces.vocabulary().size(), "token") + ", " + from +
                                          "; letters " +
                                          (tokenizer.config.options.lower_case ? "lower-cased" : "unchanged")});
  return data;
}

template <class T>
std::vector<T> hold_out(std::vector<T>& all, const TextConfig& config) {
  return data::hold_out(all, config.validation);
}

TextData load_pretraining(const TextConfig& config, Progress* progress) {
  const TextDataConfig& options = config.data;
  const std::string path = text_or_bible(options.path);
  const data::Sentences rule = options.sentences == "split" ? data::Sentences::split : data::Sentences::lines;
  data::InvalidUtf8 invalid;
  const data::Corpus all = data::read_corpus(path, rule, &invalid);
  check(!options.test.empty() || all.documents() >= options.hold_out, path, ": has ",
        plural(all.documents(), "document"), " (separated by blank lines), too few to hold out one of ",
        options.hold_out, "; lower --set data.hold_out=", options.hold_out, ", or set an evaluation file with ",
        "--set data.test=FILE");
  const bool validates = config.validation > 0;
  const auto split = [&]() -> std::pair<data::Corpus, data::Corpus> {
    if (validates)
      return (options.test.empty() ? all.hold_out(options.hold_out).first : all).hold_out(config.validation);
    if (options.test.empty()) return all.hold_out(options.hold_out);
    return {all, data::read_corpus(options.test, rule, &invalid)};
  };
  const auto [train, test] = split();
  TextData data = with_tokenizer(config, sentences_of(train));
  data.invalid = invalid;
  data::PretrainingOptions pretraining{.length = options.length, .masked = options.masked};
  pretraining.short_samples = options.short_samples;
  pretraining.seed = config.seed;
  pretraining.threads = hardware_threads();
  pretraining.progress = reporter(progress, "tokenizing " + path);
  auto source = std::make_unique<data::PretrainingDataset>(train, data.tokenizer.pieces, pretraining);
  data.notes.push_back(
      {"text", path + ": " + plural(train.documents(), "document") + ", " + plural(source->tokens(), "token") +
                   "; evaluation: " +
                   (options.test.empty() || validates ? plural(test.documents(), "document") + " of it"
                                                      : options.test)});
  data.train = std::move(source);
  data.test = std::make_unique<data::PretrainingDataset>(test, data.tokenizer.pieces, pretraining);
  return data;
}

// Moves all questions about one in `every` contexts to the result, so that both parts have different contexts.
data::Squad hold_out_contexts(data::Squad& all, int64_t every) {
  std::vector<size_t> contexts;  // with questions, in file order
  for (const data::SquadQuestion& question : all.questions)
    if (contexts.empty() || contexts.back() != question.context) contexts.push_back(question.context);
  const std::vector<size_t> held = data::hold_out(contexts, every, 1, "paragraphs in the training file");
  const auto kept = std::ranges::stable_partition(all.questions, [&](const data::SquadQuestion& question) {
    return !std::ranges::binary_search(held, question.context);
  });
  data::Squad result{.contexts = all.contexts, .questions = {}, .misplaced = {}};
  std::ranges::move(kept, std::back_inserter(result.questions));
  all.questions.erase(kept.begin(), kept.end());
  return result;
}

TextData load_squad(const TextConfig& config, Progress* progress) {
  const TextDataConfig& options = config.data;
  const auto [train_file, test_file] =
      find_files(config, {"train-v1.1.json", "train-v1.1.json.gz", "train.json", "train.json.gz"},
                 {"dev-v1.1.json", "dev-v1.1.json.gz", "dev.json", "dev.json.gz"});
  auto train = std::make_unique<data::Squad>(data::read_squad(train_file));
  auto test = std::make_unique<data::Squad>(config.validation > 0 ? hold_out_contexts(*train, config.validation)
                                                                  : data::read_squad(test_file));
  const auto limit = static_cast<size_t>(options.test_limit);
  if (limit > 0 && limit < test->questions.size()) test->questions.resize(limit);
  TextData data = with_tokenizer(config, texts_of(train->contexts));
  const auto features = [&](const data::Squad& squad, const std::string& file, bool training) {
    data::SquadOptions squad_options{.length = options.length, .stride = options.doc_stride};
    squad_options.max_question = options.max_question;
    squad_options.train = training;
    squad_options.threads = hardware_threads();
    squad_options.progress = reporter(progress, "tokenizing " + file);
    auto source = with_place(
        file, [&] { return std::make_unique<data::SquadFeatures>(squad, data.tokenizer.pieces, squad_options); });
    std::string text = plural(std::ssize(squad.questions), "question") + " in " + plural(source->size(), "window");
    if (source->left_out() > 0) text += ", " + std::to_string(source->left_out()) + " skipped";
    if (!squad.misplaced.empty())
      text += "; " + plural(std::ssize(squad.misplaced), "answer") + " not at the position given in the file (" +
              squad.misplaced.front() + ")";
    data.notes.push_back({training ? "training" : "evaluation", file_name(file) + ": " + text});
    return source;
  };
  data.train = features(*train, train_file, true);
  data.test = features(*test, config.validation > 0 ? train_file : test_file, false);
  data.train_squad = std::move(train);
  data.test_squad = std::move(test);
  return data;
}

// The classes of the initial weights' classification head; names is empty if the weights have no such head.
data::KnownClasses classes_of_head(const TextConfig& config) {
  if (config.init_weights.empty()) return {};
  data::KnownClasses head;
  head.origin = (fs::path(weights_folder(config)) / "config.json").string();
  if (exists(head.origin)) head.names = read_class_names(head.origin);
  else head.origin = config.init_weights;
  const std::optional<int64_t> outputs = classifier_outputs(config.init_weights);
  if (!outputs) return {};
  const auto default_name = [](size_t i) { return "LABEL_" + std::to_string(i); };
  if (head.names.empty())
    for (int64_t i = 0; i < *outputs; ++i) head.names.push_back(default_name(static_cast<size_t>(i)));
  check(*outputs == std::ssize(head.names), config.init_weights, ": classifier.weight has ", plural(*outputs, "output"),
        ", but ", head.origin, " names ", plural(std::ssize(head.names), "label"));
  check(*outputs > 1, head.origin, ": a head with one label means regression, which is not supported yet; ",
        "expected at least two classes");
  bool defaults = true;
  for (size_t i = 0; i < head.names.size(); ++i) defaults = defaults && head.names[i] == default_name(i);
  if (defaults)
    head.remedy =
        "these default names do not identify the classes: name the classes in id2label of config.json, or "
        "use their numbers as labels; ";
  head.remedy += "for a new head, start from weights without classifier.weight and classifier.bias";
  return head;
}

// "2 of train.tsv: negative, positive", followed by the classes without a training sentence.
std::string classes_note(const data::TsvDataset& text, const std::string& origin) {
  const auto listed = [](const std::vector<std::string>& names) {
    constexpr size_t kShown = 10;
    std::string all;
    for (size_t i = 0; i < names.size() && i < kShown; ++i) all += (i ? ", " : "") + excerpt(names[i]);
    return all + (names.size() > kShown ? ", …" : "");
  };
  const std::unordered_set<int32_t> present(text.labels.begin(), text.labels.end());
  std::vector<std::string> absent;
  for (int32_t i = 0; i < std::ssize(text.classes); ++i)
    if (!present.contains(i)) absent.push_back(text.classes[static_cast<size_t>(i)]);
  return std::to_string(text.classes.size()) + " of " + origin + ": " + listed(text.classes) +
         (absent.empty() ? "" : "; without a training sentence: " + listed(absent));
}

TextData load_classification(const TextConfig& config, Progress* progress) {
  const TextDataConfig& options = config.data;
  const auto [train_file, test_file] = find_files(config, {"train.tsv"}, {"dev.tsv"});
  const data::KnownClasses head = classes_of_head(config);
  const bool has_head = !head.names.empty();
  data::InvalidUtf8 invalid;
  data::TsvDataset train =
      has_head ? data::read_tsv_dataset(train_file, head, &invalid) : data::read_tsv_dataset(train_file, &invalid);
  data::TsvDataset test;
  if (config.validation > 0) {
    test.sentences = hold_out(train.sentences, config);
    test.labels = hold_out(train.labels, config);
    test.classes = train.classes;
    test.numbered = train.numbered;
  } else {
    test = data::read_tsv_dataset(test_file,
                                  {.names = train.classes,
                                   .numbered = train.numbered,
                                   .origin = has_head ? head.origin : train_file,
                                   .remedy = head.remedy},
                                  &invalid);
  }
  const auto limit = static_cast<size_t>(options.test_limit);
  if (limit > 0 && limit < test.sentences.size()) test.sentences.resize(limit), test.labels.resize(limit);
  TextData data = with_tokenizer(config, texts_of(train.sentences));
  data.invalid = invalid;
  data.notes.push_back({"classes", classes_note(train, has_head ? head.origin : file_name(train_file))});
  const auto source = [&](const data::TsvDataset& text, const std::string& file, const char* label) {
    data::ClassificationOptions classification{.length = options.length, .threads = hardware_threads()};
    classification.progress = reporter(progress, "tokenizing " + file);
    auto made = std::make_unique<data::ClassificationDataset>(text, data.tokenizer.pieces, classification);
    data.notes.push_back({label, file_name(file) + ": " + plural(made->size(), "sentence") +
                                     (made->cut() > 0 ? ", " + std::to_string(made->cut()) + " truncated" : "")});
    return made;
  };
  data.train = source(train, train_file, "training");
  data.test = source(test, config.validation > 0 ? train_file : test_file, "evaluation");
  data.model.labels = train.classes;
  return data;
}

// The model configuration: from config.json next to the initial weights, or a named size with this vocabulary.
BertConfig model_config(const TextConfig& config, const TextData& data, std::string* name) {
  const std::string folder = weights_folder(config), file = (fs::path(folder) / "config.json").string();
  const bool of_weights = config.model.name == "auto" && !folder.empty() && exists(file);
  check(of_weights || folder.empty() || config.model.name != "auto", file, ": is missing, so the sizes of ",
        "the model are unknown; put it next to the weights or choose a model, such as --model bert_base");
  *name = of_weights ? "bert" : config.model.name == "auto" ? config.automatic_network() : config.model.name;
  BertConfig model = of_weights ? read_bert_config(file) : bert_config(*name);
  const int64_t tokens = data.tokenizer.pieces.vocabulary().size();
  if (!of_weights) {
    model.vocab_size = tokens;
    model.pad_token_id = data.tokenizer.pieces.vocabulary().pad();
    model.max_position_embeddings = std::max(model.max_position_embeddings, config.data.length);
  }
  const int64_t beyond = model.vocab_size - tokens;
  // Some models pad the embedding table for speed.
  const bool rounded_up = model.vocab_size % 8 == 0 && beyond > 0 && beyond < 128;
  check(beyond == 0 || rounded_up, data.tokenizer.vocabulary, ": has ", tokens,
        " tokens, but vocab_size of ", file, " is ", model.vocab_size);
  check(config.data.length <= model.max_position_embeddings, "data.length is ", config.data.length,
        ", but max_position_embeddings of ", file, " is ", model.max_position_embeddings);
  return model;
}

}  // namespace

std::shared_ptr<const TextData> load_text_data(const TextConfig& config, Progress* progress) {
  check(config.init_weights.empty() || exists(config.init_weights), config.init_weights,
        ": no such file or folder; --init-weights expects weights in HuggingFace's format");
  auto data = std::make_shared<TextData>(config.task == "squad"      ? load_squad(config, progress)
                                         : config.task == "classify" ? load_classification(config, progress)
                                                                     : load_pretraining(config, progress));
  const std::vector<std::string> labels = data->model.labels;
  data->model = model_config(config, *data, &data->model_name);
  if (config.task == "classify") data->model.labels = labels;
  const std::vector<double>& dropout = config.model.dropout;
  if (!dropout.empty()) {
    data->model.hidden_dropout_prob = dropout.front();
    data->model.attention_probs_dropout_prob = dropout.back();
  }
  data->model.recompute = recomputed_layers(config.model.recompute, data->model.num_hidden_layers);
  data->model.seed = config.seed;
  std::optional<double>& longest = data->tokenizer.config.model_max_length;
  if (!longest) longest = static_cast<double>(data->model.max_position_embeddings);
  if (config.dtype == "bf16") data->model.dtype = DType::bf16;
  return data;
}

}  // namespace godwit::apps
