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

// The values of a tensor of the file, in our layout.
Tensor from_file_layout(const Tensor& loaded, const Shape& s, DType dtype) {
  const Tensor converted = loaded.dtype() == dtype ? loaded : loaded.to(dtype);
  if (s.rank() != 4) return converted;
  const Tensor ours(s, dtype, kCpu);
  swap_last_two(converted, s[0], s[3], s[1] * s[2], ours);
  return ours;
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
  struct Own {
    std::string name;
    Shape shape;
    DType dtype;
    std::function<void(const std::function<Tensor()>& values)> set;
  };
  std::vector<Own> own;
  for (const NamedTensor& t : module.buffers())
    own.push_back({t.name, t.tensor.shape(), t.tensor.dtype(), [to = t.tensor](const auto& f) { to.copy_from(f()); }});
  for (const Parameter& p : module.parameters())
    own.push_back({p.name, p.var.shape(), p.var.dtype(), [to = p.var](const auto& f) { set_values(to, f); }});
  std::vector<std::function<void()>> assignments;
  std::vector<std::string> missing, different, unexpected;
  for (const Own& t : own) {
    const auto found = file.find(t.name);
    if (found == file.end()) {
      missing.push_back(t.name);
      continue;
    }
    const Tensor& loaded = found->second;
    const bool real = loaded.dtype() == DType::f32 || loaded.dtype() == DType::f64;
    if (real && loaded.shape() == file_shape(t.shape))
      assignments.emplace_back([&t, loaded] {
        t.set([loaded, shape = t.shape, type = t.dtype] { return from_file_layout(loaded, shape, type); });
      });
    else
      different.push_back(detail::concat(t.name, " is ", loaded.dtype(), " ", loaded.shape(), ", expected ", t.dtype,
                                         " ", file_shape(t.shape)));
    file.erase(found);
  }
  for (const auto& entry : file)
    if (!entry.first.ends_with("num_batches_tracked")) unexpected.push_back(excerpt(entry.first));
  check(missing.empty() && different.empty() && unexpected.empty(), path,
        ": does not fit the model: ", listed(missing, "missing"), listed(unexpected, "unexpected"),
        listed(different, "of another shape or type"), "the model has ", own.size(), " tensors, ", assignments.size(),
        " of them match the file");
  for (const auto& assign : assignments) assign();
}

}  // namespace godwit::nn
