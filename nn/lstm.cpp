#include "nn/lstm.h"

#include <string>

namespace godwit::nn {

Lstm::Lstm(int64_t input, const std::vector<int64_t>& widths, DType dtype) : dtype_(dtype) {
  check(!widths.empty(), "Lstm: needs at least one layer");
  for (size_t k = 0; k < widths.size(); ++k) {
    const int64_t in = k == 0 ? input : widths[k - 1], width = widths[k];
    check(in > 0 && width > 0, "Lstm: input and widths must be positive, layer ", k, " is ", in, " to ", width);
    const std::string layer = "_l" + std::to_string(k);
    const DType type = compute_dtype(dtype);
    ops::LstmWeights& w = layers_.emplace_back();
    w.w_ih = add_parameter("weight_ih" + layer, Shape{4 * width, in}, type);
    w.w_hh = add_parameter("weight_hh" + layer, Shape{4 * width, width}, type);
    w.b_ih = add_parameter("bias_ih" + layer, Shape{4 * width}, type, /*decay=*/false);
    w.b_hh = add_parameter("bias_hh" + layer, Shape{4 * width}, type, /*decay=*/false);
  }
}

Lstm::Output Lstm::operator()(const Var& x, const State& initial, const LstmDropout& dropout) const {
  check(initial.size() == layers_.size(), "Lstm: the initial state has ", initial.size(), " layers, expected ",
        layers_.size());
  Output result{x, {}};
  const auto drop = [&](const Var& v, double p, size_t site) {
    if (!dropout.context) return v;
    return ops::dropout(v, p, dropout.context->key(dropout.first_site + static_cast<int64_t>(site)));
  };
  for (size_t k = 0; k < layers_.size(); ++k) {
    if (k > 0) result.y = drop(result.y, dropout.between, k - 1);
    ops::LstmWeights weights = layers_[k];
    weights.w_hh = drop(weights.w_hh, dropout.weights, layers_.size() + k);
    ops::LstmResult layer = ops::lstm(result.y, initial[k], weights);
    result.y = layer.y;
    result.state.push_back(layer.state);
  }
  return result;
}

Lstm::State Lstm::zero_state(int64_t batch) const {
  State state;
  for (const ops::LstmWeights& w : layers_) {
    const Shape shape{batch, w.w_hh.dim(1)};
    state.push_back({Var(Tensor::zeros(shape, dtype_)), Var(Tensor::zeros(shape, compute_dtype(dtype_)))});
  }
  return state;
}

}  // namespace godwit::nn
