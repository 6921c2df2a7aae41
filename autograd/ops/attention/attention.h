// Scaled dot-product attention: out = softmax(scale · q·kᵀ)·v for every head, in memory linear in the lengths.
#pragma once
#include <optional>

#include "autograd/ops/dropout_key.h"
#include "autograd/var.h"

namespace godwit {

struct AttentionOptions {
  std::optional<double> scale = {};  // 1/√width when left out
  double dropout = 0;  // of the probabilities: element ((b·heads + h)·queries + i)·keys + j of the key's draws
  DropoutKey key = {};
};

// The tensors of one call; all but mask and log_sums have the same type, float32, bfloat16 or float64.
struct AttentionTensors {
  Tensor q, k, v;   // [batch, queries, heads, width], [batch, keys, heads, width] twice
  Tensor mask;      // [batch, keys], bytes: keys at 0 are left out; undefined: none is
  Tensor out;       // like q
  Tensor log_sums;  // [batch, heads, queries] float32, float64 beside float64: log Σ_j exp(scale · q·k_j) of the keys
                    // that count; undefined where no key counts
};

struct AttentionGradients {
  Tensor out;      // read
  Tensor q, k, v;  // written, where defined
};

void attention_forward(Cpu, const AttentionTensors& t, const AttentionOptions& options);
void attention_forward(Cuda, const AttentionTensors& t, const AttentionOptions& options);
// Writes the gradients; recomputes the probabilities from log_sums.
void attention_backward(Cpu, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionGradients& gradients);
void attention_backward(Cuda, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionGradients& gradients);

namespace ops {

// q [batch, queries, heads, width] on k and v [batch, keys, heads, width] → [batch, queries, heads, width], float32,
// bfloat16 (sums and softmax in float32; with AVX512_BF16 probabilities and the scores' gradients are rounded to it
// before they are multiplied) or float64. mask [batch, keys], uint8: a key attends where it is not 0; masked
// keys cost nothing. Where all keys of a batch entry are masked, the result and all its gradients are 0. Probabilities
// are dropped and scaled as dropout does. Throws on other shapes or types, on a GPU where the width
// is above 128, and unless dropout is in [0, 1).
Var attention(const Var& q, const Var& k, const Var& v, const Tensor& mask = {}, const AttentionOptions& options = {});

}  // namespace ops
}  // namespace godwit
