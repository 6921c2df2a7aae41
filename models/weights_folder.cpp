#include "models/weights_folder.h"

#include <cstring>
#include <filesystem>

#include "engine/excerpt.h"
#include "engine/safetensors.h"
#include "nn/weights.h"

namespace godwit {

namespace fs = std::filesystem;

std::string weights_file(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  const fs::path folder(path);
  if (fs::exists(folder / kWeightsFile)) return (folder / kWeightsFile).string();
  const std::string index = (folder / kWeightsFile).string() + ".index.json";
  if (fs::exists(index)) return index;
  check(!fs::exists(folder / "pytorch_model.bin"), path, ": has pytorch_model.bin, but only safetensors files are ",
        "read; save model and tokenizer anew with a current version of transformers");
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
  for (int i = 0; i < is.rank(); ++i)
    if (is[i] != expected[i])
      return detail::concat(text, " by ", field_of(name, i), " ", expected[i], " of config.json");
  return text;
}

std::string listed(const std::vector<std::string>& items, const char* what) {
  if (items.empty()) return "";
  constexpr size_t kShown = 5;
  std::string text = detail::concat(" ", items.size(), " ", what, " (");
  for (size_t i = 0; i < items.size() && i < kShown; ++i) text += (i ? ", " : "") + items[i];
  return text + (items.size() > kShown ? ", …);" : ");");
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

namespace {

void set_values(const Parameter& p, const Tensor& loaded) {
  if (p.var.is_deferred() && p.layout == FileLayout::as_in_memory)
    return p.var.defer([flat = loaded.view({loaded.numel()})](const Tensor& part, int64_t begin) {
      const Tensor from = flat.range(begin, part.numel());  // no other elements are read from the file
      part.copy_from(from.dtype() == part.dtype() ? from : from.to(part.dtype()));
    });
  nn::set_values(p.var, [loaded, type = p.var.dtype(), layout = p.layout] {
    return from_file_layout(loaded.dtype() == type ? loaded : loaded.to(type), layout);
  });
}

}  // namespace

void copy_converted(const std::vector<std::pair<Tensor, Parameter>>& pairs) {
  for (const auto& [loaded, parameter] : pairs) set_values(parameter, loaded);
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
  copy_converted(pairs);
}

void save_weights_file(const std::string& folder, const std::vector<Parameter>& parameters) {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, folder, ": cannot be created: ", error.message());
  stream_safetensors((fs::path(folder) / kWeightsFile).string(), nn::tensor_sources(parameters), {{"format", "pt"}});
}

}  // namespace godwit
