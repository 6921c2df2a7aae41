#include "nn/weights.h"

#include <map>
#include <utility>
#include <vector>

#include "engine/excerpt.h"
#include "engine/safetensors.h"

namespace godwit::nn {
namespace {

std::vector<NamedTensor> state(const Module& module) {
  std::vector<NamedTensor> tensors = module.buffers();
  for (const Parameter& p : module.parameters()) tensors.push_back({p.name, p.var.value()});
  return tensors;
}

// Filters only: [out, kh, kw, in] <-> [out, in, kh, kw].
Shape file_shape(const Shape& s) { return s.rank() == 4 ? Shape{s[0], s[3], s[1], s[2]} : s; }

// y [n, b, a] from x [n, a, b]
void swap_last_two(const Tensor& x, int64_t n, int64_t a, int64_t b, const Tensor& y) {
  dispatch_real(x.dtype(), "weights", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for (int64_t k = 0; k < n; ++k, from += a * b, to += a * b)
      for (int64_t i = 0; i < a; ++i)
        for (int64_t j = 0; j < b; ++j) to[j * a + i] = from[i * b + j];
  });
}

// Copies to the CPU.
Tensor to_file_layout(const Tensor& anywhere) {
  const Tensor value = anywhere.to(kCpu);
  const Shape& s = value.shape();
  if (s.rank() != 4) return value;
  Tensor result(file_shape(s), value.dtype(), kCpu);
  swap_last_two(value, s[0], s[1] * s[2], s[3], result);
  return result;
}

void assign(const Tensor& loaded, const Tensor& value) {
  const Shape& s = value.shape();
  const Tensor converted = loaded.dtype() == value.dtype() ? loaded : loaded.to(value.dtype());
  if (s.rank() != 4) return value.copy_from(converted);
  const Tensor ours(s, value.dtype(), kCpu);
  swap_last_two(converted, s[0], s[3], s[1] * s[2], ours);
  value.copy_from(ours);
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
  for (const NamedTensor& t : state(module)) tensors.emplace_back(t.name, to_file_layout(t.tensor));
  save_safetensors(path, tensors, {{"format", "pt"}});
}

void load_weights(const std::string& path, const Module& module,
                  const std::function<std::string(const std::string&)>& name_of) {
  std::map<std::string, Tensor> file;
  for (const auto& [name, tensor] : map_weights(path)) {
    const std::string own = name_of ? name_of(name) : name;
    check(file.emplace(own, tensor).second, path, ": holds ", excerpt(own), " under two names");
  }
  const std::vector<NamedTensor> own = state(module);
  std::vector<std::pair<Tensor, Tensor>> pairs;  // (from the file, in the module)
  std::vector<std::string> missing, different, unexpected;
  for (const NamedTensor& t : own) {
    const auto found = file.find(t.name);
    if (found == file.end()) {
      missing.push_back(t.name);
      continue;
    }
    const Tensor& loaded = found->second;
    const bool real = loaded.dtype() == DType::f32 || loaded.dtype() == DType::f64;
    if (real && loaded.shape() == file_shape(t.tensor.shape())) pairs.emplace_back(loaded, t.tensor);
    else
      different.push_back(detail::concat(t.name, " is ", loaded.dtype(), " ", loaded.shape(), ", expected ",
                                         t.tensor.dtype(), " ", file_shape(t.tensor.shape())));
    file.erase(found);
  }
  for (const auto& entry : file)
    if (!entry.first.ends_with("num_batches_tracked")) unexpected.push_back(excerpt(entry.first));
  check(missing.empty() && different.empty() && unexpected.empty(), path,
        ": does not fit the model: ", listed(missing, "missing"), listed(unexpected, "unexpected"),
        listed(different, "of another shape or type"), "the model has ", own.size(), " tensors, ", pairs.size(),
        " of them match the file");
  for (const auto& [loaded, value] : pairs) assign(loaded, value);
}

}  // namespace godwit::nn
