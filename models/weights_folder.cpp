#include "models/weights_folder.h"

#include <cstring>
#include <filesystem>
#include <regex>
#include <set>

#include "autograd/leaf.h"
#include "engine/excerpt.h"
#include "engine/safetensors.h"
#include "nn/weights.h"
#include "optim/checkpoint_files.h"

namespace godwit {

namespace fs = std::filesystem;
using nn::listed;

std::string weights_file(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  const fs::path folder(path);
  if (fs::exists(folder / kWeightsFile)) return (folder / kWeightsFile).string();
  const std::string index = (folder / kWeightsFile).string() + ".index.json";
  if (fs::exists(index)) return index;
  check(!fs::exists(folder / "pytorch_model.bin"), path, ": has pytorch_model.bin, but only safetensors files are ",
        "supported; save model and tokenizer again with a current version of transformers");
  fail(path, ": has no ", kWeightsFile);
}

std::string difference(const std::string& name, const Tensor& loaded, const Shape& expected, const FieldOf& field_of) {
  const Shape& is = loaded.shape();
  const DType type = loaded.dtype();
  if (type != DType::f32 && type != DType::f64 && type != DType::f16 && type != DType::bf16)
    return detail::concat(name, " is ", type, ", expected a floating-point type");
  if (is == expected) return "";
  std::string text = detail::concat(name, " is ", is, ", the model expects ", expected);
  if (is.rank() != expected.rank()) return text;
  int i = 0;
  while (is[i] == expected[i]) ++i;
  const std::string field = field_of(name, i);
  return field.empty() ? text : detail::concat(text, " by ", field, " ", expected[i], " of config.json");
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

namespace {

void set_values(const std::string& file, const Parameter& p, const Tensor& loaded) {
  if (Leaf(p.var).is_deferred() && p.layout == FileLayout::as_in_memory)
    return Leaf(p.var).defer([file, name = p.name, flat = loaded.view({loaded.numel()})](const Tensor& part,
                                                                                         int64_t begin) {
      const Tensor from = flat.range(begin, part.numel());  // no other elements are read from the file
      part.copy_from(nn::finite_values(file, name, from, part.dtype()));
    });
  nn::set_values(p.var, [file, name = p.name, loaded, type = p.var.dtype(), layout = p.layout] {
    return from_file_layout(nn::finite_values(file, name, loaded, type), layout);
  });
}

}  // namespace

std::map<std::string, Tensor>::node_type extract_tied(const std::string& file, const char* name, const char* of,
                                                      std::map<std::string, Tensor>* tensors) {
  auto tied = tensors->extract(name);
  const auto own = tensors->find(of);
  check(!tied || own == tensors->end() || same_bits(own->second, tied.mapped()), file, ": ", name, " differs from ", of,
        ", but the model ties them (tie_word_embeddings)");
  return tied;
}

void copy_converted(const std::string& file, const std::vector<std::pair<Tensor, Parameter>>& pairs) {
  for (const auto& [loaded, parameter] : pairs) set_values(file, parameter, loaded);
}

void load_parameters(const std::string& file, std::map<std::string, Tensor> tensors,
                     const std::vector<Parameter>& parameters, const FieldOf& field_of, const std::string& model) {
  std::vector<std::pair<Tensor, Parameter>> pairs;  // from the file, of the model
  std::vector<std::string> missing, unexpected, different;
  for (const Parameter& p : parameters) {
    const auto found = tensors.extract(p.name);
    if (!found) {
      missing.push_back(p.name);
      continue;
    }
    const std::string problem = difference(p.name, found.mapped(), file_shape(p.var.shape(), p.layout), field_of);
    if (problem.empty()) pairs.emplace_back(found.mapped(), p);
    else
      different.push_back(problem);
  }
  for (const auto& [name, tensor] : tensors) unexpected.push_back(excerpt(name));
  check(missing.empty() && unexpected.empty() && different.empty(), file, ": does not fit ", model, ":",
        listed(missing, "missing"), listed(unexpected, "unexpected"), listed(different, "of another shape or type"),
        " ", pairs.size(), " of ", parameters.size(), " tensors fit");
  copy_converted(file, pairs);
}

namespace {

int64_t bytes_of(const TensorSource& tensor) { return tensor.shape.numel() * size_of(tensor.dtype); }

// Divides the tensors, in order, into files of at most max_bytes. A larger tensor gets a separate file.
std::vector<std::vector<TensorSource>> divide(std::vector<TensorSource> tensors, int64_t max_bytes) {
  std::vector<std::vector<TensorSource>> files(1);
  int64_t bytes = 0;
  for (TensorSource& tensor : tensors) {
    const int64_t own = bytes_of(tensor);
    if (!files.back().empty() && bytes + own > max_bytes) files.emplace_back(), bytes = 0;
    files.back().push_back(std::move(tensor));
    bytes += own;
  }
  return files;
}

// Whether `name` is a name of a model's file or its index.
bool is_of_weights(const std::string& name) {
  static const std::regex pattern(R"(model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?)");
  return std::regex_match(name, pattern);
}

}  // namespace

void save_weights_file(const std::string& folder, const std::vector<Parameter>& parameters, int64_t max_bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, folder, ": cannot be created: ", error.message());
  const std::vector<std::vector<TensorSource>> files = divide(nn::tensor_sources(parameters), max_bytes);
  std::map<std::string, std::string> file_of;
  std::set<std::string> names;
  int64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = checkpoint::model_file(static_cast<int>(i), static_cast<int>(files.size()));
    names.insert(name);
    for (const TensorSource& tensor : files[i]) file_of[tensor.name] = name, bytes += bytes_of(tensor);
    stream_safetensors((fs::path(folder) / name).string(), files[i], {{"format", "pt"}});
  }
  if (files.size() > 1) {
    names.insert(checkpoint::kIndex);
    const std::string index = (fs::path(folder) / checkpoint::kIndex).string();
    checkpoint::write_synced(index + ".tmp", safetensors_index(file_of, bytes));
    fs::rename(index + ".tmp", index, error);
    check(!error, index, ": cannot be replaced: ", error.message());
  }
  // weights_file() prefers an old model.safetensors to the index, so old files are removed last.
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); is_of_weights(name) && !names.contains(name))
      old.push_back(entry.path());
  for (const fs::path& path : old) {
    fs::remove(path, error);
    check(!error, path.string(), ": cannot be removed: ", error.message());
  }
}

}  // namespace godwit
