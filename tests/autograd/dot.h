// A loss with a known gradient.
#pragma once
#include <functional>

#include "autograd/var.h"

namespace godwit::test {

// Σ w·x over all elements; the gradient of w is x. `before` runs at the start of the backward function.
inline Var dot(const Var& w, double x, std::function<void()> before = {}) {
  double sum = 0;
  for (int64_t i = 0; i < w.value().numel(); ++i) sum += w.value().item(i) * x;
  return Var::result(Tensor::full({1}, sum), {w}, [dw = w.gradient(), x, before](const Tensor& dy) {
    if (before) before();
    const Tensor g = dw.target();
    g.fill(x * dy.item());
    dw.add(g);
  });
}

}  // namespace godwit::test
