#include "models/pretrained.h"

#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "engine/excerpt.h"
#include "engine/safetensors.h"
#include "models/weights_folder.h"
#include "nn/weights.h"

namespace godwit {
namespace {

using nn::listed;

constexpr const char* kWordEmbeddings = "embeddings.word_embeddings.weight";
constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";  // tied to the word embeddings
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";      // older name of kPredictionBias
constexpr std::pair<const char*, const char*> kOldNames[] = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                                             {"LayerNorm.beta", "LayerNorm.bias"}};
constexpr const char* kPredictionBias = "cls.predictions.bias";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The name of a tensor without "bert.", in the spelling of the current version.
std::string plain_name(std::string name) {
  if (name.starts_with("bert.")) name.erase(0, 5);
  for (const auto& [old, now] : kOldNames)
    if (name.ends_with(old)) name.replace(name.size() - std::strlen(old), std::string::npos, now);
  return name;
}

bool of_body(const std::string& name) { return name.starts_with("embeddings.") || name.starts_with("encoder."); }

// The field of config.json that determines an extent of a tensor. Empty if none does.
const char* bert_field(std::string_view name, int dimension) {
  struct Row {
    const char *part, *first, *second;
  };
  constexpr const char* kHidden = "hidden_size";
  for (const Row& row : {Row{"word_embeddings", "vocab_size", kHidden},
                         {"position_embeddings", "max_position_embeddings", kHidden},
                         {"token_type_embeddings", "type_vocab_size", kHidden},
                         {"intermediate.dense", "intermediate_size", kHidden},
                         {"attention.output", kHidden, kHidden},
                         {"output.dense", kHidden, "intermediate_size"},
                         {kPredictionBias, "vocab_size", kHidden},
                         {"classifier", "id2label", kHidden},
                         {"qa_outputs", "", kHidden},
                         {"seq_relationship", "", kHidden}})
    if (contains(name, row.part)) return dimension == 0 ? row.first : row.second;
  return kHidden;
}

// The file's weights by their plain names.
std::map<std::string, Tensor> read_plain(const std::string& file) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : map_weights(file)) {
    const std::string plain = plain_name(name);
    if (plain == "embeddings.position_ids" || plain == "embeddings.token_type_ids") continue;
    if (!tensors.emplace(plain, tensor).second) fail(file, ": holds ", excerpt(plain), " under two names");
  }
  return tensors;
}

// Removes tied tensors of the decoder. Throws if one differs from the tensor to which it is tied.
void drop_tied(const std::string& file, std::map<std::string, Tensor>* tensors) {
  if (auto bias = extract_tied(file, kDecoderBias, kPredictionBias, tensors)) {
    bias.key() = kPredictionBias;
    tensors->insert(std::move(bias));
  }
  extract_tied(file, kDecoderWeight, kWordEmbeddings, tensors);
}

}  // namespace

std::string LoadReport::str() const {
  std::string text = std::to_string(loaded) + " tensors loaded;" + listed(missing, "missing, initialized at random") +
                     listed(unexpected, "unexpected, ignored");
  text.pop_back();
  return text;
}

LoadReport load_pretrained(const std::string& path, const BertModule& model) {
  const std::string file = weights_file(path);
  std::map<std::string, Tensor> tensors = read_plain(file);
  const std::vector<Parameter> parameters = model.parameters();
  for (const Parameter& p : parameters)
    if (plain_name(p.name) == kPredictionBias) drop_tied(file, &tensors);

  LoadReport report;
  std::vector<std::pair<Tensor, Parameter>> pairs;  // from the file, of the model
  std::vector<std::string> missing, unexpected, different;  // errors
  for (const Parameter& p : parameters) {
    const auto found = tensors.extract(plain_name(p.name));
    if (!found) {
      (of_body(plain_name(p.name)) ? missing : report.missing).push_back(p.name);
      continue;
    }
    const std::string problem = difference(p.name, found.mapped(), p.var.shape(), bert_field);
    if (problem.empty()) pairs.emplace_back(found.mapped(), p);
    else different.push_back(problem);
  }
  for (const auto& [name, tensor] : tensors) (of_body(name) ? unexpected : report.unexpected).push_back(excerpt(name));
  check(missing.empty() && unexpected.empty() && different.empty(), file, ": does not fit the model of ",
        model.config().num_hidden_layers, " layers (num_hidden_layers):", listed(missing, "missing"),
        listed(unexpected, "unexpected"), listed(different, "of another shape or type"), " ", pairs.size(), " of ",
        parameters.size(), " tensors fit");
  copy_converted(file, pairs);
  report.loaded = std::ssize(pairs);
  return report;
}

std::optional<int64_t> classifier_outputs(const std::string& path) {
  const std::map<std::string, Tensor> tensors = read_plain(weights_file(path));
  const auto head = tensors.find("classifier.weight");
  if (head == tensors.end()) return std::nullopt;
  return head->second.shape().rank() > 0 ? head->second.dim(0) : 0;
}

void save_pretrained(const std::string& folder, const BertModule& model) {
  save_weights_file(folder, model.parameters());
  write_bert_config(folder + "/config.json", model.config(), model.architecture());
}

}  // namespace godwit
