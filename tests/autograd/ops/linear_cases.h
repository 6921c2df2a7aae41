// Compares joined_linear() with separate layers.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/leaf.h"
#include "autograd/ops/linear.h"
#include "engine/context.h"
#include "engine/philox.h"
#include "tests/autograd/gradient_check.h"

namespace godwit::test {

// Small integers. Sums of their products are exact in float32 in any order.
inline Tensor random_integers(const Shape& shape, DType dtype, uint64_t seed) {
  const Tensor x(shape, DType::f64, kCpu);
  RandomStream random(seed, Purpose::test);
  for (double& value : x.span<double>()) value = static_cast<double>(random.below(7)) - 3;
  return x.to(dtype);
}

// Parameters with gradients. `place(i, shape)` returns the memory of parameter i, in the order weight, bias, weight, …;
// its gradient has the corresponding place.
using Place = std::function<std::pair<Tensor, Tensor>(size_t i, const Shape& shape)>;

// Values and gradients of joined_linear() on the context's device must equal those of separate layers in float64,
// rounded once. The gradient of x is the sum over all layers and an earlier gradient. A CPU rounds before it adds the
// earlier gradient.
inline void expect_joined_linear_equals_layers(DType type, int64_t rows, int64_t in, const std::vector<int64_t>& outs,
                                               bool bias, const Place& place = {}) {
  const std::string what = godwit::detail::concat(type, " [", rows, ", ", in, "], ", outs.size(), " layers, first ",
                                                  outs[0], bias ? ", bias" : "");
  const Device device = context().device;
  const DType wide = compute_dtype(type);
  std::vector<LinearParameters> layers, exact;
  int64_t width = 0;
  for (const int64_t out : outs) {
    for (const bool vector : {false, true}) {
      if (vector && !bias) continue;
      const Shape shape = vector ? Shape{out} : Shape{out, in};
      const size_t number = 2 * layers.size() - (vector ? 1 : 0);
      const Tensor values = random_integers(shape, wide, 10 + number);
      const Var p(values.to(device), true);
      if (place) {
        const auto [value, grad] = place(number, shape);
        Leaf(p).rebind(value, grad);
      }
      const Var e(values.to(DType::f64), true);
      if (vector) layers.back().bias = p, exact.back().bias = e;
      else layers.push_back({p}), exact.push_back({e});
    }
    width += out;
  }
  const Tensor x = random_integers({rows, in}, type, 1), dy = random_integers({rows, width}, type, 2);
  const Tensor earlier = random_integers({rows, in}, type, 3);

  const Var source(x.to(device), true);
  const Var input = Var::result(source.value(), {source}, [g = source.gradient()](const Tensor& d) { g.add(d); });
  const Var y = ops::joined_linear(input, layers);
  const Var loss =
      Var::result(Tensor::zeros({}), {y, input}, [&, g = y.gradient(), h = input.gradient()](const Tensor&) {
        h.add(earlier.to(device).clone());
        g.add(dy.to(device));
      });
  backward(loss);

  int64_t column = 0;
  Tensor sum = Tensor::full({rows, in}, 0, DType::f64).to(kCpu);
  const std::vector<double> found = values(y.value());
  for (size_t i = 0; i < outs.size(); ++i) {
    const int64_t out = outs[i];
    const auto& [w, b] = exact[i];
    const Tensor dy_i({rows, out}, DType::f64, kCpu);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < out; ++c) dy_i.data<double>()[r * out + c] = dy.item(r * width + column + c);
    const Var exact_x(x.to(DType::f64), true);
    const std::vector<double> expected = [&, &weight = w, &vector = b] {
      const ContextGuard on_cpu{Context()};
      const Var exact_y = ops::linear(exact_x, weight, vector);
      backward_from(exact_y, dy_i);
      return values(exact_y.value().to(type));
    }();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < out; ++c)
        ASSERT_EQ(found[static_cast<size_t>(r * width + column + c)], expected[static_cast<size_t>(r * out + c)])
            << what << ", layer " << i << " [" << r << ", " << c << "]";
    ASSERT_EQ(values(layers[i].weight.grad()), values(w.grad())) << what << ", layer " << i;
    if (bias) {
      ASSERT_EQ(values(layers[i].bias.grad()), values(b.grad())) << what << ", layer " << i;
    }
    for (int64_t k = 0; k < sum.numel(); ++k) sum.data<double>()[k] += exact_x.grad().item(k);
    column += out;
  }
  if (!device.is_cuda()) sum = sum.to(type).to(DType::f64);
  for (int64_t k = 0; k < sum.numel(); ++k) sum.data<double>()[k] += earlier.item(k);
  ASSERT_EQ(values(source.grad()), values(sum.to(type))) << what;
}

}  // namespace godwit::test
