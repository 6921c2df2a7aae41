// recompute: a block of a network whose activations are recomputed in the backward pass.
#pragma once
#include <functional>
#include <vector>

#include "nn/module.h"

namespace godwit::nn {

// Returns f(x). f computes with the parameters of `block`. Only x is kept for backward(), which calls f again.
// Therefore, `block` must live until backward(), and f must own all other captures. f must not depend on other
// variables with gradients. See godwit::recompute().
inline Var recompute(const Module& block, const Var& x, const std::function<Var(const Var&)>& f) {
  std::vector<Var> inputs{x};
  for (const Parameter& p : block.parameters()) inputs.push_back(p.var);
  return godwit::recompute(inputs, [x, f] { return f(x); });
}

}  // namespace godwit::nn
