// An op: SiLU, y = x·σ(x) (Elfwing et al. 2018), with its gradient dy/dx = σ(x)(1 + x(1 − σ(x))).
#include <cmath>

#include "quadrants.h"

using namespace godwit;

Var silu(const Var& x) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  const auto sigmoid = [](float v) { return 1 / (1 + std::exp(-v)); };
  const float* in = x.value().data<float>();
  for (int64_t i = 0; i < y.numel(); ++i) y.data<float>()[i] = in[i] * sigmoid(in[i]);
  // The backward function gets dy and adds to the gradient of x. It captures what it needs of the forward pass.
  return Var::result(y, {x}, [dx = x.gradient(), value = x.value(), sigmoid](const Tensor& dy) {
    const Tensor g = dx.target();
    for (int64_t i = 0; i < g.numel(); ++i) {
      const float v = value.data<float>()[i], s = sigmoid(v);
      g.data<float>()[i] = dy.data<float>()[i] * s * (1 + v * (1 - s));
    }
    dx.add(g);
  });
}

// Compares the gradient of Σ silu(x) with central differences.
void check_gradient() {
  const std::vector<float> values{-3, -1, -0.1f, 0, 0.5f, 2};
  const int64_t n = static_cast<int64_t>(values.size());
  const Var x(Tensor::of(values, {1, n}), true);
  const Var ones(Tensor::full({1, n}, 1));
  backward(ops::matmul(silu(x), ones, false, true));
  for (int64_t i = 0; i < n; ++i) {
    const auto f = [](double v) { return v / (1 + std::exp(-v)); };
    const double v = values[static_cast<size_t>(i)], h = 1e-4, difference = (f(v + h) - f(v - h)) / (2 * h);
    check(std::abs(x.grad().data<float>()[i] - difference) < 1e-5, "silu: gradient at ", v, " is ",
          x.grad().data<float>()[i], ", expected ", difference);
  }
}

struct SiluNet : nn::Module {
  nn::Linear hidden{2, 64}, out{64, 4};
  SiluNet() {
    add("hidden", hidden), add("out", out);
    nn::initialize(*this, /*seed=*/1);
  }
  Var operator()(const Var& x) const { return out(silu(hidden(x))); }
};

int main() {
  check_gradient();
  quadrants::train<SiluNet>("silu", {.optimizer = "adamw"});
}
