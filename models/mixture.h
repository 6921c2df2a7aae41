// MixtureOfExperts: a feed-forward layer with several experts. Each token uses a few of them (Jiang et al. 2024,
// "Mixtral of Experts").
#pragma once
#include <memory>
#include <vector>

#include "autograd/ops/experts.h"
#include "models/llama_config.h"
#include "nn/layers.h"

namespace godwit {

// The routers' results in a forward pass, one entry per layer.
struct RoutedTokens {
  std::vector<Var> probabilities;       // [n, experts]
  std::vector<ExpertRouting> routings;  // the experts of each token
};

// The output for a token is the weighted sum of the outputs of its num_experts_per_tok most probable experts. The
// weights are the normalized probabilities of these experts. No token is dropped.
class MixtureOfExperts : public nn::Module {
 public:
  explicit MixtureOfExperts(const LlamaConfig& config);  // weights are zero
  ~MixtureOfExperts() override;
  Var operator()(const Var& x, RoutedTokens* routed) const;  // [n, hidden_size]; appends to `routed` unless null

 private:
  class Expert;
  int64_t per_token_;
  nn::Linear gate_;
  std::vector<std::unique_ptr<Expert>> experts_;
  std::vector<Var> w1_, w2_, w3_;  // weights of all experts
};

}  // namespace godwit
