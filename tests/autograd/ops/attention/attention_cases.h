// Inputs of attention tests, and the results of one call with its gradients.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "autograd/ops/attention/attention.h"
#include "tests/autograd/gradient_check.h"

namespace godwit::testing {

struct Sizes {
  int64_t batch, queries, keys, heads, width;
  Shape q() const { return {batch, queries, heads, width}; }
  Shape k() const { return {batch, keys, heads, width}; }
};

// A mask with 1 where counts(batch entry, key) is true.
inline Tensor mask_of(int64_t batch, int64_t keys, const std::function<bool(int64_t, int64_t)>& counts) {
  Tensor mask({batch, keys}, DType::u8);
  for (int64_t i = 0; i < mask.numel(); ++i) mask.data<uint8_t>()[i] = counts(i / keys, i % keys) ? 1 : 0;
  return mask;
}

inline const DropoutKey kDraws{.seed = 0x123456789abcdef, .step = 7, .site = 3, .sender = 2};

struct Results {
  std::vector<std::vector<double>> all;  // out, dq, dk, dv
  bool operator==(const Results&) const = default;
};

inline Results run(const std::array<Tensor, 4>& t, const Tensor& mask, const AttentionOptions& options) {
  const std::vector<Var> in{Var(t[0], true), Var(t[1], true), Var(t[2], true)};
  const Var out = ops::attention(in[0], in[1], in[2], mask, options);
  backward(Var::result(Tensor::full({}, 0), {out}, [g = out.gradient(), d = t[3]](const Tensor&) { g.add(d); }));
  Results results{{values(out.value())}};
  for (const Var& v : in) results.all.push_back(values(v.grad()));
  return results;
}

inline std::array<Tensor, 4> tensors(const Sizes& s, DType dtype) {
  auto make = [&](const Shape& shape, uint64_t seed) { return random_tensor(shape, DType::f32, seed).to(dtype); };
  return {make(s.q(), 1), make(s.k(), 2), make(s.k(), 3), make(s.q(), 4)};
}

inline std::array<Tensor, 4> widened(std::array<Tensor, 4> t) {
  for (Tensor& x : t) x = x.to(DType::f64);
  return t;
}

}  // namespace godwit::testing
