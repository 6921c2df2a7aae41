// Mixture of experts: routes each token to k of E experts. The rows of tokens are sorted by expert, so that each expert
// computes only its rows. No token is dropped, because an expert may have any number of rows.
#pragma once
#include <vector>

#include "autograd/var.h"

namespace godwit {

// The experts of each token. slots[t, s] is the sorted row of token t for its s-th expert.
struct ExpertRouting {
  Tensor experts;              // int32 [n, k], by descending probability; ties: lower expert first
  Tensor slots;                // int32 [n, k]; `experts` and `slots` are on the CPU
  Tensor tokens;               // int32 [n · k] on the CPU: the token of each sorted row
  std::vector<int64_t> start;  // expert e has rows [start[e], start[e + 1]), in the order of the tokens
  int64_t count() const { return std::ssize(start) - 1; }                            // number of experts
  int64_t rows(int64_t e) const { return start[size_t(e) + 1] - start[size_t(e)]; }  // number of rows of expert e
};

// Routes each row of probabilities [n, E] to the experts with the k largest values. Reads the probabilities on the
// host: on a GPU, the host waits, and the step cannot be captured. Throws if a probability is NaN or k is not in [1,
// E].
ExpertRouting route_to_experts(const Tensor& probabilities, int64_t k);

// weights [n, k] = the probabilities of the experts, divided by the sum over the token's experts. ids is
// ExpertRouting::experts on the device.
void expert_weights_forward(Cpu, const Tensor& probabilities, const Tensor& ids, const Tensor& weights);
void expert_weights_forward(Cuda, const Tensor& probabilities, const Tensor& ids, const Tensor& weights);
// Writes all elements of d_probabilities [n, E].
void expert_weights_backward(Cpu, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities);
void expert_weights_backward(Cuda, const Tensor& probabilities, const Tensor& ids, const Tensor& dy,
                             const Tensor& d_probabilities);
// y[t] = Σ_s weights[t, s] · x[slots[t, s]], summed in order of s. y is [n, width], x [n · k, width]; weights have type
// compute_t.
void combine_experts_forward(Cpu, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& y);
void combine_experts_forward(Cuda, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& y);
// Writes all elements of dx [n · k, width] and d_weights [n, k].
void combine_experts_backward(Cpu, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& dy,
                              const Tensor& dx, const Tensor& d_weights);
void combine_experts_backward(Cuda, const Tensor& x, const Tensor& weights, const Tensor& slots, const Tensor& dy,
                              const Tensor& dx, const Tensor& d_weights);

namespace ops {

// Probabilities of the routed experts, divided by their sum: [n, E] -> [n, k].
Var expert_weights(const Var& probabilities, const ExpertRouting& routing);

// Rows of x [n, width] sorted by expert: [n · k, width].
Var dispatch_to_experts(const Var& x, const ExpertRouting& routing);

// Multiplies the sorted rows x [n · k, in] of expert e by the transpose of weights[e] [out, in]. The result is [n · k,
// out]. The weights of an expert without rows get the gradient 0, so that every replica has a gradient for every
// parameter.
Var expert_linear(const Var& x, const std::vector<Var>& weights, const ExpertRouting& routing);

// The weighted sum of each token's sorted rows: x [n · k, width] and weights [n, k] -> [n, width].
Var combine_experts(const Var& x, const Var& weights, const ExpertRouting& routing);

// E · Σ_e f_e · p_e, a scalar. f_e is the mean number of times that a token uses expert e, and p_e is the mean
// probability of expert e, both over the tokens of all layers (Fedus et al. 2021, as in transformers' Mixtral). f_e has
// no gradient.
Var load_balancing_loss(const std::vector<Var>& probabilities, const std::vector<ExpertRouting>& routings);

}  // namespace ops
}  // namespace godwit
