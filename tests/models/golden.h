// The formulas of make_golden.py for the tests: weights, images, labels, and summaries of tensors.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/module.h"

namespace godwit::test {

inline uint32_t fnv1a(const std::string& text) {
  uint32_t hash = 0x811C9DC5u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

// Word i of the table with the name hash `name`. hashed_unit() maps the word to a multiple of 2⁻²³ in [-1, 1).
inline uint32_t hashed_word(uint32_t name, int64_t i) {
  uint32_t x = name + static_cast<uint32_t>(i) * 0x9E3779B9u;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}
inline double hashed_unit(uint32_t name, int64_t i) { return (hashed_word(name, i) >> 8) * 0x1p-23 - 1.0; }

// The index in Godwit's layout [a, b, c, d] of element i of PyTorch's layout [a, d, b, c], for filters and images.
// Tensors of other ranks have equal layouts.
inline int64_t channels_last(const Shape& ours, int64_t i) {
  if (ours.rank() != 4) return i;
  const int64_t plane = ours[1] * ours[2], d = ours[3];
  return (i / (plane * d) * plane + i % plane) * d + i / plane % d;
}

// Fills a parameter or buffer with `formula` of make_golden.py.
inline void fill_by_formula(const std::string& name, const Tensor& there) {
  const Shape& shape = there.shape();
  const Tensor value(shape, there.dtype(), kCpu);
  double center = 0, scale = 0.125;
  if (shape.rank() > 1) {
    const double fan_in = static_cast<double>(value.numel() / shape[0]);
    scale = static_cast<float>(std::sqrt((shape.rank() == 4 ? 6.0 : 3.0) / fan_in));
  } else if (name.ends_with("running_var")) {
    center = 1, scale = 0.5;
  } else if (name.ends_with("bn3.weight")) {
    center = 0.1875, scale = 0.0625;
  } else if (name.ends_with("weight")) {
    center = 0.75, scale = 0.25;
  }
  const uint32_t hash = fnv1a(name);
  dispatch_real(value.dtype(), "fill", [&]<class T>() {
    for (int64_t i = 0; i < value.numel(); ++i)
      value.data<T>()[channels_last(shape, i)] = static_cast<float>(center + scale * hashed_unit(hash, i));
  });
  there.copy_from(value);
}

inline void fill_by_formula(const nn::Module& module) {
  for (const Parameter& p : module.parameters()) fill_by_formula(p.name, p.var.value());
  for (const nn::NamedTensor& b : module.buffers()) fill_by_formula(b.name, b.tensor);
}

// Compares bits instead of values, so NaN and negative zero count too.
inline void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& name) {
  ASSERT_EQ(a.shape(), b.shape()) << name;
  ASSERT_EQ(a.dtype(), b.dtype()) << name;
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0) << name;
}

// Each parameter must have the values of make_golden.py's formula for `prefix` + its name, unless its name starts with
// `except`.
inline void expect_formula(const nn::Module& model, const std::string& prefix = "",
                           const std::string& except = "none") {
  for (const Parameter& p : model.parameters()) {
    if (p.name.starts_with(except)) continue;
    const Tensor expected(p.var.shape(), p.var.dtype());
    fill_by_formula(prefix + p.name, expected);
    expect_same_bits(p.var.value(), expected, p.name);
  }
}

inline Tensor golden_images(Shape shape, DType dtype) {
  Tensor x(shape, dtype, kCpu);
  const uint32_t hash = fnv1a("images");
  dispatch_real(dtype, "images", [&]<class T>() {
    for (int64_t i = 0; i < x.numel(); ++i) x.data<T>()[channels_last(shape, i)] = static_cast<T>(hashed_unit(hash, i));
  });
  return x;
}

inline Tensor golden_labels(int64_t n, uint32_t classes) {
  Tensor labels({n}, DType::i32, kCpu);
  for (int64_t i = 0; i < n; ++i)
    labels.data<int32_t>()[i] = static_cast<int32_t>(hashed_word(fnv1a("labels"), i) % classes);
  return labels;
}

// Norm, dot product with the table name.probe, and the elements selected by name.sample, as in `summary` of
// make_golden.py.
inline std::vector<double> summary(const std::string& name, const Tensor& tensor, size_t length) {
  const uint32_t probe = fnv1a(name + ".probe"), sample = fnv1a(name + ".sample");
  const std::vector<double> values = tensor.to(DType::f64).to_vector<double>();
  auto at = [&](int64_t i) { return values[static_cast<size_t>(channels_last(tensor.shape(), i))]; };
  double squares = 0, dot = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) squares += at(i) * at(i), dot += at(i) * hashed_unit(probe, i);
  std::vector<double> result{std::sqrt(squares), dot};
  for (int64_t k = 0; result.size() < length; ++k)
    result.push_back(at(hashed_word(sample, k) % static_cast<uint32_t>(values.size())));
  return result;
}

inline std::string golden_path(const std::string& file) { return GODWIT_SOURCE_DIR "/tests/models/golden/" + file; }

inline nlohmann::json read_golden(const std::string& file) {
  std::ifstream stream(golden_path(file));
  check(stream.good(), "golden file missing: ", golden_path(file));
  return nlohmann::json::parse(stream);
}

// Compares names, order and shapes (in PyTorch's layout) of tensors with `digest` of make_golden.py.
inline void expect_list(const nlohmann::json& golden, const std::vector<nn::NamedTensor>& tensors) {
  std::vector<std::string> lines;
  std::string all;
  for (const nn::NamedTensor& t : tensors) {
    Shape s = t.tensor.shape();
    if (s.rank() == 4) s = {s[0], s[3], s[1], s[2]};
    lines.push_back(t.name + " " + s.str());
    all += (all.empty() ? "" : "\n") + lines.back();
  }
  ASSERT_EQ(lines.size(), golden["count"]);
  for (size_t i = 0; i < golden["first"].size(); ++i) {
    EXPECT_EQ(lines[i], golden["first"][i]);
    EXPECT_EQ(lines[lines.size() - golden["last"].size() + i], golden["last"][i]);
  }
  EXPECT_EQ(fnv1a(all), golden["fnv1a"]) << all;
}

// Compares a model's parameters and buffers with `names` of make_golden.py.
inline void expect_names(const nlohmann::json& golden, const nn::Module& model) {
  std::vector<nn::NamedTensor> parameters;
  for (const Parameter& p : model.parameters()) parameters.push_back({p.name, p.var.value()});
  expect_list(golden["parameters"], parameters);
  expect_list(golden["buffers"], model.buffers());
}

}  // namespace godwit::test
