// Mixture of experts: routes each token to k of E experts. Rows of tokens are sorted by expert, so that each expert
// computes its own rows only. No token is dropped; an expert may have any number of rows.
#pragma once
#include <vector>

#include "autograd/var.h"

namespace godwit {

// The experts of each token. Row slots[t, s] of the sorted rows belongs to token t and its s-th expert.
struct ExpertRouting {
  Tensor experts;              // int32 [n, k], by falling probability; ties: lower expert first
  Tensor slots;                // int32 [n, k]; on the CPU, like experts
  Tensor tokens;               // int32 [n · k] on the CPU: the token of each sorted row
  std::vector<int64_t> start;  // expert e has rows start[e] to start[e + 1]; tokens of an expert are in order
  int64_t count() const { return std::ssize(start) - 1; }                            // number of experts
  int64_t rows(int64_t e) const { return start[size_t(e) + 1] - start[size_t(e)]; }  // of expert e
};

// Routes each row of probabilities [n, E] to the experts with its k largest values. Reads the probabilities on the
// host: on a GPU the host waits, and a step that routes cannot be captured. Throws if a probability is NaN or k is not
// in [1, E].
ExpertRouting route_to_experts(const Tensor& probabilities, int64_t k);

// weights [n, k] = the probabilities of the experts, divided by their sum for each token. ids: ExpertRouting::experts
// on the device.
void expert_weights_forward(Cpu, const Tensor& probabilities, const Tensor& ids, const Tensor& weights);
void expert_weights_forward(Cuda, const Tensor& probabilities, const Tensor& ids, const Tensor& weights);
// Writes all of d_probabilities [n, E].
void expert_weights_backward(Cpu, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities);
void expert_weights_backward(Cuda, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities);
// y [n, width]: y[t] = Σ_s weights[t, s] · x[slots[t, s]], in order of s. x [n · k, width]; weights have type
// compute_t.
void combine_experts_forward(Cpu, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& y);
void combine_experts_forward(Cuda, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& y);
// Writes all of dx [n · k, width] and d_weights [n, k].
void combine_experts_backward(Cpu, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& dy,
                              const Tensor& dx, const Tensor& d_weights);
void combine_experts_backward(Cuda, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& dy,
                              const Tensor& dx, const Tensor& d_weights);

namespace ops {

// Probabilities of the routed experts divided by their sum: [n, E] -> [n, k].
Var expert_weights(const Var& probabilities, const ExpertRouting& routing);

// Rows of x [n, width] sorted by expert: [n · k, width].
Var dispatch_to_experts(const Var& x, const ExpertRouting& routing);

// Multiplies the sorted rows x [n · k, in] of each expert by its own weights[e] [out, in], transposed: [n · k, out].
// The weights of an expert without rows get the gradient 0, so that every replica has a gradient of every parameter.
Var expert_linear(const Var& x, const std::vector<Var>& weights, const ExpertRouting& routing);

// The weighted sum of each token's sorted rows: x [n · k, width] and weights [n, k] -> [n, width].
Var combine_experts(const Var& x, const Var& weights, const ExpertRouting& routing);

// E · Σ_e f_e · p_e, where f_e is the mean number of uses of expert e by a token, and p_e its mean probability, over
// the tokens of all layers (Fedus et al. 2021, as in transformers' Mixtral). f_e has no gradient. A scalar.
Var load_balancing_loss(const std::vector<Var>& probabilities, const std::vector<ExpertRouting>& routings);

}  // namespace ops
}  // namespace godwit
