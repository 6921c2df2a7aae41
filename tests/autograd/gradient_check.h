// Compares gradients with central differences in float64, and creates random tensors for tests.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "autograd/var.h"
#include "engine/context.h"
#include "engine/philox.h"

namespace godwit::test {

// Standard normal numbers times `scale`. A pure function of the seed.
inline Tensor random_tensor(Shape shape, DType dtype = DType::f64, uint64_t seed = 1, double scale = 1) {
  RandomStream random(seed, Purpose::test);
  const Tensor x(shape, dtype, kCpu);
  dispatch_real(dtype, "random_tensor", [&]<class T>() {
    for (T& value : x.span<T>()) value = static_cast<T>(scale * random.normal());
  });
  return x;
}

// Returns f() with the context's thread count set to `threads`.
template <class F>
auto with_threads(int threads, F&& f) {
  const ContextGuard guard([&](Context& next) { next.threads = threads; });
  return f();
}

// The result of f must not depend on the number of threads or on the width of vectors.
template <class F>
void expect_same_bits_everywhere(const F& f, const std::vector<int>& threads = {3}) {
  const auto expected = with_threads(1, f);
  for (const int count : threads) EXPECT_EQ(with_threads(count, f), expected) << count << " threads";
  const ContextGuard guard([](Context& next) { next.vector_bits = 128; });
  EXPECT_EQ(f(), expected);
}

// The elements of x, converted to float64 without rounding.
inline std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

// Runs backward() with dy as the gradient of y. dy: a tensor, or a function whose result operations may overwrite.
template <class Dy>
void backward_from(const Var& y, const Dy& dy) {
  backward(Var::result(Tensor::zeros({}), {y}, [g = y.gradient(), dy](const Tensor&) {
    if constexpr (std::is_invocable_v<Dy>) g.add(dy());
    else g.add(dy);
  }));
}

// Σ weight·y with random weights: a scalar that depends differently on every element of an output.
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

// Compares backward() of f with (f(x + h) - f(x - h)) / 2h for every element of every float64 input. The error may be
// at most `tolerance`, relative to max(1, |gradient|). With h = 2⁻¹⁷, truncation and rounding are of order 1e-10 for
// values of order 1. Also checks that a second backward() adds, and that a backward() after clear_grad() overwrites. f
// is called often and must be a pure function.
inline void check_gradients(const std::function<Var(const std::vector<Var>&)>& f, const std::vector<Tensor>& inputs,
                            double tolerance = 1e-6) {
  std::vector<Var> leaves;
  for (const Tensor& input : inputs) leaves.emplace_back(input.clone(), true);
  auto loss = [&] { return weighted_sum(f(leaves)); };
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
  EXPECT_EQ(gradients(), twice) << "a second backward must accumulate";
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
          << "input " << input << " " << inputs[input].shape() << ", element " << i << ": backward gives " << analytic
          << ", differences give " << numeric;
    }
  }
}

}  // namespace godwit::test
