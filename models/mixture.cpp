#include "models/mixture.h"

#include <string>
#include <utility>

#include "autograd/ops/cast.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/swiglu.h"

namespace godwit {

// The weights of one expert. MixtureOfExperts computes the products.
class MixtureOfExperts::Expert : public nn::Module {
 public:
  explicit Expert(const LlamaConfig& c)
      : w1(c.hidden_size, c.intermediate_size, c.dtype, /*bias=*/false),
        w2(c.intermediate_size, c.hidden_size, c.dtype, /*bias=*/false),
        w3(c.hidden_size, c.intermediate_size, c.dtype, /*bias=*/false) {
    add("w1", w1);
    add("w2", w2);
    add("w3", w3);
  }
  nn::Linear w1, w2, w3;
};

MixtureOfExperts::MixtureOfExperts(const LlamaConfig& config)
    : per_token_(config.num_experts_per_tok),
      gate_(config.hidden_size, config.num_local_experts, config.dtype, /*bias=*/false) {
  add("gate", gate_);
  for (int64_t e = 0; e < config.num_local_experts; ++e) {
    const Expert& expert = *experts_.emplace_back(std::make_unique<Expert>(config));
    add("experts." + std::to_string(e), *experts_.back());
    w1_.push_back(expert.w1.weight());
    w2_.push_back(expert.w2.weight());
    w3_.push_back(expert.w3.weight());
  }
}

MixtureOfExperts::~MixtureOfExperts() = default;

Var MixtureOfExperts::operator()(const Var& x, RoutedTokens* routed) const {
  const Var probabilities = ops::softmax(ops::cast(gate_(x), compute_dtype(x.dtype())));
  ExpertRouting routing = route_to_experts(probabilities.value(), per_token_);
  const Var rows = ops::dispatch_to_experts(x, routing);
  const Var inner = ops::swiglu(ops::expert_linear(rows, w1_, routing), ops::expert_linear(rows, w3_, routing));
  const Var outputs = ops::expert_linear(inner, w2_, routing);
  const Var y = ops::combine_experts(outputs, ops::expert_weights(probabilities, routing), routing);
  if (routed) routed->probabilities.push_back(probabilities), routed->routings.push_back(std::move(routing));
  return y;
}

}  // namespace godwit
