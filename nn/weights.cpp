#include "nn/weights.h"

#include <map>
#include <utility>
#include <vector>

#include "engine/excerpt.h"
#include "engine/safetensors.h"

namespace godwit::nn {
namespace {

// A parameter or buffer of a module.
struct Entry {
  std::string name;
  Tensor tensor;
  FileLayout layout = FileLayout::as_in_memory;
};

std::vector<Entry> state(const Module& module) {
  std::vector<Entry> entries;
  for (const NamedTensor& buffer : module.buffers()) entries.push_back({buffer.name, buffer.tensor});
  for (const Parameter& p : module.parameters()) entries.push_back({p.name, p.var.value(), p.layout});
  return entries;
}

// "3 missing (a, b, c); ": lists at most five names.
std::string listed(const std::vector<std::string>& items, const char* what) {
  if (items.empty()) return "";
  constexpr size_t kShown = 5;
  std::string text = std::to_string(items.size()) + " " + what + " (";
  for (size_t i = 0; i < items.size() && i < kShown; ++i) text += (i ? ", " : "") + items[i];
  return text + (items.size() > kShown ? ", …); " : "); ");
}

}  // namespace

void save_weights(const std::string& path, const Module& module) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Entry& entry : state(module))
    tensors.emplace_back(entry.name, to_file_layout(entry.tensor, entry.layout));
  save_safetensors(path, tensors, {{"format", "pt"}});
}

void load_weights(const std::string& path, const Module& module,
                  const std::function<std::string(const std::string&)>& name_of) {
  std::map<std::string, Tensor> file;
  for (const auto& [name, tensor] : map_weights(path)) {
    const std::string own = name_of ? name_of(name) : name;
    check(file.emplace(own, tensor).second, path, ": holds ", excerpt(own), " under two names");
  }
  const std::vector<Entry> own = state(module);
  std::vector<std::pair<Tensor, Entry>> pairs;  // (from the file, in the module)
  std::vector<std::string> missing, different, unexpected;
  for (const Entry& entry : own) {
    const auto found = file.find(entry.name);
    if (found == file.end()) {
      missing.push_back(entry.name);
      continue;
    }
    const Tensor& loaded = found->second;
    const bool real = loaded.dtype() == DType::f32 || loaded.dtype() == DType::f64;
    const Shape expected = file_shape(entry.tensor.shape(), entry.layout);
    if (real && loaded.shape() == expected) pairs.emplace_back(loaded, entry);
    else
      different.push_back(detail::concat(entry.name, " is ", loaded.dtype(), " ", loaded.shape(), ", expected ",
                                         entry.tensor.dtype(), " ", expected));
    file.erase(found);
  }
  for (const auto& entry : file)
    if (!entry.first.ends_with("num_batches_tracked")) unexpected.push_back(excerpt(entry.first));
  check(missing.empty() && different.empty() && unexpected.empty(), path,
        ": does not fit the model: ", listed(missing, "missing"), listed(unexpected, "unexpected"),
        listed(different, "of another shape or type"), "the model has ", own.size(), " tensors, ", pairs.size(),
        " of them match the file");
  for (const auto& [loaded, entry] : pairs) {
    const DType type = entry.tensor.dtype();
    entry.tensor.copy_from(from_file_layout(loaded.dtype() == type ? loaded : loaded.to(type), entry.layout));
  }
}

}  // namespace godwit::nn
