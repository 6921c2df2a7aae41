#include "models/pretrained.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "engine/excerpt.h"
#include "engine/safetensors.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kWordEmbeddings = "embeddings.word_embeddings.weight";
constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";  // tied to the word embeddings
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";      // another name of the next
constexpr std::pair<const char*, const char*> kOldNames[] = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                                             {"LayerNorm.beta", "LayerNorm.bias"}};
constexpr const char* kPredictionBias = "cls.predictions.bias";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The name that a tensor has in every file and model: without "bert.", and as today's version calls it.
std::string plain_name(std::string name) {
  if (name.starts_with("bert.")) name.erase(0, 5);
  for (const auto& [old, now] : kOldNames)
    if (name.ends_with(old)) name.replace(name.size() - std::strlen(old), std::string::npos, now);
  return name;
}

bool of_body(const std::string& name) { return name.starts_with("embeddings.") || name.starts_with("encoder."); }

// The field of config.json behind an extent of a tensor.
const char* field_of(std::string_view name, int dimension) {
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
                         {"classifier", "id2label", kHidden}})
    if (contains(name, row.part)) return dimension == 0 ? row.first : row.second;
  return kHidden;
}

// What is wrong with a tensor of the file, or "".
std::string difference(const std::string& name, const Tensor& loaded, const Tensor& own) {
  const Shape &is = loaded.shape(), &expected = own.shape();
  const DType type = loaded.dtype();
  if (type != DType::f32 && type != DType::f64 && type != DType::f16 && type != DType::bf16)
    return detail::concat(name, " is ", type, ", expected a floating-point type");
  if (is == expected) return "";
  std::string text = detail::concat(name, " is ", is, ", the model expects ", expected);
  if (is.rank() != expected.rank()) return text;
  for (int i = 0; i < is.rank(); ++i)
    if (is[i] != expected[i])
      return detail::concat(text, " by ", field_of(name, i), " ", expected[i], " of config.json");
  return text;
}

// " 3 missing (a, b, c);": at most five of them by name.
std::string listed(const std::vector<std::string>& items, const char* what) {
  if (items.empty()) return "";
  constexpr size_t kShown = 5;
  std::string text = detail::concat(" ", items.size(), " ", what, " (");
  for (size_t i = 0; i < items.size() && i < kShown; ++i) text += (i ? ", " : "") + items[i];
  return text + (items.size() > kShown ? ", …);" : ");");
}

std::string weights_file(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  const fs::path folder(path);
  if (fs::exists(folder / kWeights)) return (folder / kWeights).string();
  const std::string index = (folder / kWeights).string() + ".index.json";
  if (fs::exists(index)) return index;
  check(!fs::exists(folder / "pytorch_model.bin"), path, ": has pytorch_model.bin, but only safetensors files are ",
        "read; save model and tokenizer anew with a current version of transformers");
  fail(path, ": has no ", kWeights);
}

// The file's tensors by their plain names; the ones that hold no weights are left out.
std::map<std::string, Tensor> read_plain(const std::string& file) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : map_weights(file)) {
    const std::string plain = plain_name(name);
    if (plain == "embeddings.position_ids" || plain == "embeddings.token_type_ids") continue;
    if (!tensors.emplace(plain, tensor).second) fail(file, ": holds ", excerpt(plain), " under two names");
  }
  return tensors;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

// A decoder beside the embeddings: they must be one, as in this model.
void drop_tied(const std::string& file, std::map<std::string, Tensor>* tensors) {
  if (auto bias = tensors->extract(kDecoderBias)) {
    const auto own = tensors->find(kPredictionBias);
    check(own == tensors->end() || same(own->second, bias.mapped()), file, ": ", kDecoderBias, " differs from ",
          kPredictionBias, ", they must be one");
    bias.key() = kPredictionBias;
    tensors->insert(std::move(bias));
  }
  if (const auto weight = tensors->extract(kDecoderWeight)) {
    const auto words = tensors->find(kWordEmbeddings);
    check(words == tensors->end() || same(words->second, weight.mapped()), file, ": ", kDecoderWeight,
          " differs from ", kWordEmbeddings, ", they must be one (tie_word_embeddings)");
  }
}

}  // namespace

std::string LoadReport::str() const {
  std::string text = std::to_string(loaded) + " tensors loaded;" + listed(missing, "missing, left as they were") +
                     listed(unexpected, "of the file not used");
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
  std::vector<std::pair<Tensor, Tensor>> pairs;  // from the file, ours
  std::vector<std::string> missing, unexpected, different;  // that must not be
  for (const Parameter& p : parameters) {
    const auto found = tensors.extract(plain_name(p.name));
    if (!found) {
      (of_body(plain_name(p.name)) ? missing : report.missing).push_back(p.name);
      continue;
    }
    const std::string problem = difference(p.name, found.mapped(), p.var.value());
    if (problem.empty()) pairs.emplace_back(found.mapped(), p.var.value());
    else different.push_back(problem);
  }
  for (const auto& [name, tensor] : tensors) (of_body(name) ? unexpected : report.unexpected).push_back(excerpt(name));
  check(missing.empty() && unexpected.empty() && different.empty(), file, ": does not fit the model of ",
        model.config().num_hidden_layers, " layers (num_hidden_layers):", listed(missing, "missing"),
        listed(unexpected, "unexpected"), listed(different, "of another shape or type"), " ", pairs.size(), " of ",
        parameters.size(), " tensors are as they should be");
  for (const auto& [loaded, value] : pairs)
    value.copy_from(loaded.dtype() == value.dtype() ? loaded : loaded.to(value.dtype()));
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
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, folder, ": cannot be made: ", error.message());
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Parameter& p : model.parameters()) tensors.emplace_back(p.name, p.var.value());
  save_safetensors((fs::path(folder) / kWeights).string(), tensors, {{"format", "pt"}});
  write_bert_config((fs::path(folder) / "config.json").string(), model.config(), model.architecture());
}

}  // namespace godwit
