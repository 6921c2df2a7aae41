// Gradients against central differences in float64, and random tensors for tests.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/var.h"
#include "engine/context.h"
#include "engine/philox.h"

namespace godwit::testing {

// Standard normal numbers times `scale`, the same for the same seed.
inline Tensor random_tensor(Shape shape, DType dtype = DType::f64, uint64_t seed = 1, double scale = 1) {
  RandomStream random(seed, Purpose::test);
  const Tensor x(shape, dtype, kCpu);
  dispatch_real(dtype, "random_tensor", [&]<class T>() {
    for (T& value : x.span<T>()) value = static_cast<T>(scale * random.normal());
  });
  return x;
}

// f() with the context set to so many threads.
template <class F>
auto with_threads(int threads, F&& f) {
  Context next = context();
  next.threads = threads;
  ContextGuard guard(next);
  return f();
}

// The elements of x, exactly, as float64.
inline std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

namespace detail {

// Σ weight·y, weights by Philox: a scalar to which every element of an output counts differently.
inline Var weighted_sum(const Var& y) {
  const Tensor weight = random_tensor(y.shape(), DType::f64, 4242);
  double sum = 0;
  for (int64_t i = 0; i < y.value().numel(); ++i) sum += weight.data<double>()[i] * y.value().data<double>()[i];
  return Var::result(Tensor::full({}, sum, DType::f64), {y}, [dy = y.gradient(), weight](const Tensor& dz) {
    Tensor g = weight.clone();
    for (double& value : g.span<double>()) value *= dz.item();
    if (dy) dy.add(g);
  });
}

}  // namespace detail

// Holds backward() of f against (f(x + h) - f(x - h)) / 2h on every element of every float64 input, to `tolerance`
// relative to max(1, |gradient|): with h = 2⁻¹⁷ truncation and rounding are of order 1e-10 for values of order 1.
// Also: a second backward adds, one after clear_grad() overwrites. f is called often and must be a pure function.
inline void check_gradients(const std::function<Var(const std::vector<Var>&)>& f, const std::vector<Tensor>& inputs,
                            double tolerance = 1e-6) {
  std::vector<Var> leaves;
  for (const Tensor& input : inputs) leaves.emplace_back(input.clone(), true);
  auto loss = [&] { return detail::weighted_sum(f(leaves)); };
  auto gradients = [&] {
    backward(loss());
    std::vector<std::vector<double>> all;
    for (const Var& leaf : leaves) {
      EXPECT_TRUE(leaf.has_grad()) << "input " << all.size() << " got no gradient";
      all.push_back(leaf.has_grad() ? leaf.grad().to_vector<double>() : std::vector<double>(leaf.value().numel()));
    }
    return all;
  };
  const auto first = gradients();
  auto twice = first;
  for (auto& gradient : twice)
    for (double& value : gradient) value += value;
  EXPECT_EQ(gradients(), twice) << "a second backward must add";
  for (const Var& leaf : leaves) leaf.clear_grad();
  EXPECT_EQ(gradients(), first) << "a backward after clear_grad must overwrite";

  NoGrad off;
  for (size_t input = 0; input < leaves.size(); ++input) {
    double* x = leaves[input].value().data<double>();
    for (size_t i = 0; i < first[input].size(); ++i) {
      const double h = 0x1p-17, kept = x[i];
      x[i] = kept + h;
      const double above = loss().value().item();
      x[i] = kept - h;
      const double below = loss().value().item();
      x[i] = kept;
      const double numeric = (above - below) / (2 * h), analytic = first[input][i];
      ASSERT_LE(std::abs(numeric - analytic), tolerance * std::max({1.0, std::abs(numeric), std::abs(analytic)}))
          << "input " << input << " " << inputs[input].shape() << ", element " << i << ": backward says " << analytic
          << ", differences say " << numeric;
    }
  }
}

}  // namespace godwit::testing
