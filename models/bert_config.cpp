#include "models/bert_config.h"

#include <cmath>
#include <unordered_map>
#include <utility>

#include "engine/check.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "models/config_json-inl.h"
#include "models/named_configs.h"

namespace godwit {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;  // for output only: a search takes linear time

// Turc et al. 2019 (tiny to medium), Devlin et al. 2018 (base, large): heads of width 64, intermediate layers of four
// times the hidden width.
const NamedConfigs<BertConfig>& bert_table() {
  const auto sized = [](int64_t layers, int64_t hidden) {
    BertConfig config;
    config.num_hidden_layers = layers;
    config.hidden_size = hidden;
    config.num_attention_heads = hidden / 64;
    config.intermediate_size = 4 * hidden;
    return config;
  };
  static const NamedConfigs<BertConfig> rows{
      {"bert_tiny", sized(2, 128)},   {"bert_mini", sized(4, 256)},  {"bert_small", sized(4, 512)},
      {"bert_medium", sized(8, 512)}, {"bert_base", sized(12, 768)}, {"bert_large", sized(24, 1024)},
  };
  return rows;
}

// The integers of config.json with their largest values, which keep sizes far from overflow.
struct BertSize {
  const char* name;
  int64_t BertConfig::*member;
  int64_t most;
};
constexpr BertSize kBertSizes[] = {
    {"vocab_size", &BertConfig::vocab_size, 1 << 28},
    {"hidden_size", &BertConfig::hidden_size, 1 << 20},
    {"num_hidden_layers", &BertConfig::num_hidden_layers, 1 << 12},
    {"num_attention_heads", &BertConfig::num_attention_heads, 1 << 20},
    {"intermediate_size", &BertConfig::intermediate_size, 1 << 22},
    {"max_position_embeddings", &BertConfig::max_position_embeddings, 1 << 24},
    {"type_vocab_size", &BertConfig::type_vocab_size, 1 << 20},
};

const std::vector<std::string> kBertActivations{"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "tanh"};

void check_probability(const char* name, double p) {
  check(p >= 0 && p < 1, "bert: ", name, " must be in [0, 1), got ", p);
}

// id2label {"0": "name", …}, or num_labels.
void read_labels(const ConfigReader& reader, std::vector<std::string>* labels) {
  const json* names = reader.find("id2label");
  if (!names) {
    auto count = static_cast<int64_t>(labels->size());
    reader.integer("num_labels", &count);
    constexpr int64_t kMost = 1 << 16;  // limits the memory for generated names
    if (count < 1 || count > kMost) reader.wrong("num_labels", json(count), "must be from 1 to ", kMost);
    labels->clear();
    for (int64_t i = 0; i < count; ++i) labels->push_back("LABEL_" + std::to_string(i));
    return;
  }
  if (!names->is_object() || names->empty()) reader.wrong("id2label", *names, "must map numbers from 0 on to texts");
  labels->clear();
  for (size_t i = 0; i < names->size(); ++i) {
    const auto found = names->find(std::to_string(i));
    if (found == names->end() || !found->is_string())
      reader.wrong("id2label", *names, "must map the numbers 0 to ", names->size() - 1, " to texts, ", i, " does not");
    labels->push_back(found->get<std::string>());
  }
}

}  // namespace

std::vector<std::string> bert_names() { return names_of(bert_table()); }

BertConfig bert_config(const std::string& name) { return config_of(bert_table(), "bert", name); }

void check_bert_config(const BertConfig& config) {
  for (const BertSize& size : kBertSizes)
    check(config.*size.member >= 1 && config.*size.member <= size.most, "bert: ", size.name, " must be from 1 to ",
          size.most, ", got ", config.*size.member);
  check(config.hidden_size % config.num_attention_heads == 0, "bert: hidden_size ", config.hidden_size,
        " does not divide into num_attention_heads ", config.num_attention_heads);
  if (!contains(kBertActivations, config.hidden_act))
    fail("bert: hidden_act '", excerpt(config.hidden_act), "' is not supported",
         did_you_mean(config.hidden_act, kBertActivations));
  check_probability("hidden_dropout_prob", config.hidden_dropout_prob);
  check_probability("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  if (config.classifier_dropout) check_probability("classifier_dropout", *config.classifier_dropout);
  if (const auto pad = config.pad_token_id)
    check(*pad >= 0 && *pad < config.vocab_size, "bert: pad_token_id must be in [0, vocab_size ", config.vocab_size,
          "), got ", *pad);
  check(config.initializer_range >= 0 && std::isfinite(config.initializer_range),
        "bert: initializer_range must be finite and not negative, got ", config.initializer_range);
  check(config.layer_norm_eps > 0 && std::isfinite(config.layer_norm_eps),
        "bert: layer_norm_eps must be finite and positive, got ", config.layer_norm_eps);
  check(!config.labels.empty(), "bert: a classifier needs at least one label");
  check(config.recompute >= 0 && config.recompute <= config.num_hidden_layers,
        "bert: recompute must be from 0 to num_hidden_layers ", config.num_hidden_layers, ", got ", config.recompute);
  check(config.dtype == DType::f32 || config.dtype == DType::bf16 || config.dtype == DType::f64,
        "bert: dtype must be f32, bf16 or f64, got ", config.dtype);
}

BertConfig read_bert_config(const std::string& path) {
  const ConfigReader reader(path);
  reader.only("model_type", "bert", "only BERT is supported");
  reader.only("position_embedding_type", "absolute", "relative positions are not supported");
  reader.only("is_decoder", false, "only encoders are supported");
  reader.only("add_cross_attention", false, "only encoders are supported");
  BertConfig config;
  for (const BertSize& size : kBertSizes) reader.size(size.name, &(config.*size.member));
  reader.text("hidden_act", &config.hidden_act);
  reader.number("hidden_dropout_prob", &config.hidden_dropout_prob);
  reader.number("attention_probs_dropout_prob", &config.attention_probs_dropout_prob);
  if (reader.find("classifier_dropout")) reader.number("classifier_dropout", &config.classifier_dropout.emplace());
  if (reader.is_null("pad_token_id")) config.pad_token_id.reset();
  else reader.integer("pad_token_id", &*config.pad_token_id);
  reader.number("initializer_range", &config.initializer_range);
  reader.number("layer_norm_eps", &config.layer_norm_eps);
  reader.boolean("tie_word_embeddings", &config.tie_word_embeddings);
  read_labels(reader, &config.labels);
  with_place(reader.file(), [&] { check_bert_config(config); });
  return config;
}

std::vector<std::string> read_class_names(const std::string& path) {
  const ConfigReader reader(path);
  const std::string& file = reader.file();
  std::string problem = "single_label_classification";
  reader.text("problem_type", &problem);
  check(problem == "single_label_classification", file, ": problem_type is \"", excerpt(problem),
        "\", which is not supported yet, expected single_label_classification or null");
  std::vector<std::string> names = BertConfig().labels;
  read_labels(reader, &names);
  if (!reader.find("id2label")) return names;
  const auto classes = static_cast<int64_t>(names.size());
  int64_t count = classes;
  reader.integer("num_labels", &count);
  check(count == classes, file, ": num_labels is ", count, ", but id2label names ", classes, " classes");
  std::unordered_map<std::string, int64_t> ids;
  for (int64_t i = 0; i < classes; ++i) {
    const auto [first, added] = ids.emplace(names[static_cast<size_t>(i)], i);
    check(added, file, ": id2label: \"", excerpt(first->first), "\" is the name of both ", first->second, " and ", i);
  }
  const json* inverse = reader.find("label2id");
  if (!inverse) return names;
  if (!inverse->is_object()) reader.wrong("label2id", *inverse, "must map texts to numbers");
  for (const auto& [name, id] : inverse->items()) {
    const auto known = ids.extract(name);
    check(known && id == json(known.mapped()), file, ": label2id: \"", excerpt(name), "\" is ", excerpt(dump_json(id)),
          ", but id2label has ", known ? std::to_string(known.mapped()) + " for it" : "no such name");
  }
  check(ids.empty(), file, ": label2id: \"", ids.empty() ? "" : excerpt(ids.begin()->first), "\" is missing");
  return names;
}

namespace {

// Index by label. Equal labels get one entry: the index of the last label, at the position of the first.
ordered_json numbers_of(const std::vector<std::string>& labels) {
  std::unordered_map<std::string, size_t> last;
  for (size_t i = 0; i < labels.size(); ++i) last[labels[i]] = i;
  ordered_json object = ordered_json::object();
  auto& members = object.get_ref<ordered_json::object_t&>();
  for (const std::string& label : labels)
    if (const auto found = last.extract(label)) members.emplace_back(label, found.mapped());
  return object;
}

ordered_json to_json(const BertConfig& config) {
  ordered_json object{{"model_type", "bert"}, {"position_embedding_type", "absolute"}};
  for (const BertSize& size : kBertSizes) object[size.name] = config.*size.member;
  object["hidden_act"] = config.hidden_act;
  object["hidden_dropout_prob"] = config.hidden_dropout_prob;
  object["attention_probs_dropout_prob"] = config.attention_probs_dropout_prob;
  object["classifier_dropout"] = config.classifier_dropout ? ordered_json(*config.classifier_dropout) : ordered_json();
  object["pad_token_id"] = config.pad_token_id ? ordered_json(*config.pad_token_id) : ordered_json();
  object["initializer_range"] = config.initializer_range;
  object["layer_norm_eps"] = config.layer_norm_eps;
  if (!config.tie_word_embeddings) object["tie_word_embeddings"] = false;
  auto& names = (object["id2label"] = ordered_json::object()).get_ref<ordered_json::object_t&>();
  for (const std::string& label : config.labels) names.emplace_back(std::to_string(names.size()), label);
  object["label2id"] = numbers_of(config.labels);
  return object;
}

}  // namespace

uint64_t hash(const BertConfig& config) { return hash_config(to_json(config), config.dtype); }

void write_bert_config(const std::string& path, const BertConfig& config, const std::string& architecture) {
  ordered_json object = to_json(config);
  object["architectures"] = {architecture};
  write_config_json(path, object);
}

}  // namespace godwit
