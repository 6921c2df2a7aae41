#include "nn/weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "comm/compress/wire/block_math.h"
#include "engine/excerpt.h"

namespace godwit::nn {

std::string listed(const std::vector<std::string>& items, const char* what) {
  if (items.empty()) return "";
  constexpr size_t kShown = 5;
  std::string text = detail::concat(" ", items.size(), " ", what, " (");
  for (size_t i = 0; i < items.size() && i < kShown; ++i) text += (i ? ", " : "") + items[i];
  return text + (items.size() > kShown ? ", …);" : ");");
}

std::vector<TensorSource> tensor_sources(const std::vector<Parameter>& parameters) {
  std::vector<TensorSource> tensors;
  for (const Parameter& p : parameters)
    tensors.push_back({p.name, file_shape(p.var.shape(), p.layout), p.var.dtype(), [p] {
                         // Read by an operation, so that the bucket of the parameter may be released afterwards.
                         return Var::result(to_file_layout(p.var.value(), p.layout), {}, {}).value();
                       }});
  return tensors;
}

Tensor finite_values(const std::string& file, const std::string& name, const Tensor& values, DType type) {
  // Converts float64 values to float32 first, where large values such as 1e300 become infinite.
  const Tensor x = values.dtype() == DType::f64 && type != DType::f64 ? values.to(DType::f32) : values;
  const int64_t n = x.numel();
  const auto finite = [&](const Tensor& single) { return block::all_finite(single.data<float>(), n); };
  check(x.dtype() == DType::f64
            ? std::all_of(x.data<double>(), x.data<double>() + n, [](double value) { return std::isfinite(value); })
        : x.dtype() == DType::f32 ? finite(x)
                                  : finite(x.to(DType::f32)),
        file, ": ", excerpt(name), " has a value that is infinite or NaN",
        x.dtype() == values.dtype() ? "" : " in float32");
  return x.dtype() == type ? x : x.to(type);
}

void save_weights(const std::string& path, const Module& module) {
  std::vector<TensorSource> tensors;
  for (const NamedTensor& t : module.buffers())
    tensors.push_back({t.name, t.tensor.shape(), t.tensor.dtype(), [x = t.tensor] { return x; }});
  for (TensorSource& parameter : tensor_sources(module.parameters())) tensors.push_back(std::move(parameter));
  stream_safetensors(path, tensors, {{"format", "pt"}});
}

bool load_weights(const std::string& path, const Module& module,
                  const std::function<std::string(const std::string&)>& name_of,
                  const std::vector<std::string>& replaceable) {
  std::map<std::string, Tensor> file;
  for (const auto& [name, tensor] : map_weights(path)) {
    const std::string own = name_of ? name_of(name) : name;
    check(file.emplace(own, tensor).second, path, ": holds ", excerpt(own), " under two names");
  }
  struct Own {
    std::string name;
    Shape shape;
    DType dtype;
    FileLayout layout;
    std::function<void(const std::function<Tensor()>& values)> set;
  };
  std::vector<Own> own;
  for (const NamedTensor& t : module.buffers())
    own.push_back({t.name, t.tensor.shape(), t.tensor.dtype(), FileLayout::as_in_memory,
                   [to = t.tensor](const auto& f) { to.copy_from(f()); }});
  for (const Parameter& p : module.parameters())
    own.push_back({p.name, p.var.shape(), p.var.dtype(), p.layout, [to = p.var](const auto& f) { set_values(to, f); }});
  const auto fits = [&](const Own& t) {
    const auto found = file.find(t.name);
    return found != file.end() && found->second.shape() == file_shape(t.shape, t.layout);
  };
  const auto may_differ = [&](const Own& t) { return std::ranges::find(replaceable, t.name) != replaceable.end(); };
  const bool kept = std::ranges::any_of(own, [&](const Own& t) { return may_differ(t) && !fits(t); });
  std::vector<std::function<void()>> assignments;
  std::vector<std::string> missing, different, unexpected;
  for (const Own& t : own) {
    const auto found = file.find(t.name);
    if (kept && may_differ(t)) {
      file.erase(t.name);
      continue;
    }
    if (found == file.end()) {
      missing.push_back(t.name);
      continue;
    }
    const Tensor& loaded = found->second;
    const bool real = loaded.dtype() == DType::f32 || loaded.dtype() == DType::f64;
    const bool integers = !real && loaded.dtype() != DType::bf16 && loaded.dtype() != DType::f16;
    const Shape expected = file_shape(t.shape, t.layout);
    if ((real || loaded.dtype() == t.dtype) && loaded.shape() == expected)
      assignments.emplace_back([&path, &t, loaded, integers] {
        t.set([path, name = t.name, loaded, integers, type = t.dtype, layout = t.layout] {
          return from_file_layout(integers ? loaded : finite_values(path, name, loaded, type), layout);
        });
      });
    else
      different.push_back(
          detail::concat(t.name, " is ", loaded.dtype(), " ", loaded.shape(), ", expected ", t.dtype, " ", expected));
    file.erase(found);
  }
  for (const auto& entry : file)
    if (!entry.first.ends_with("num_batches_tracked")) unexpected.push_back(excerpt(entry.first));
  check(missing.empty() && different.empty() && unexpected.empty(), path,
        ": does not fit the model:", listed(missing, "missing"), listed(unexpected, "unexpected"),
        listed(different, "of another shape or type"), " the model has ", own.size(), " tensors, ", assignments.size(),
        " of them match the file");
  for (const auto& assign : assignments) assign();
  return kept;
}

}  // namespace godwit::nn
