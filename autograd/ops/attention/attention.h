// Scaled dot-product attention: out = softmax(scale · q·kᵀ)·v for every head. The memory use is linear in the sequence
// lengths.
#pragma once
#include <optional>

#include "autograd/ops/dropout_key.h"
#include "autograd/var.h"

namespace godwit {

struct AttentionOptions {
  std::optional<double> scale = {};  // default: 1/√width
  // Dropout of the attention probabilities. Probability (b, h, i, j) uses random word
  // ((b·heads + h)·queries + i)·keys + j of the key.
  double dropout = 0;
  DropoutKey key = {};  // key of the dropout's random numbers
  // Query i attends keys 0 to i + keys - queries, so the last query attends all keys. Requires queries <= keys and no
  // mask.
  bool causal = false;
};

// The tensors of one call. All except mask and log_sums have one type: float32, bfloat16 or float64.
struct AttentionTensors {
  Tensor q, k, v;   // q [batch, queries, heads, width]; k, v [batch, keys, kv_heads, width]
  Tensor mask;      // [batch, keys] uint8: 0 masks a key; undefined: no mask
  Tensor out;       // like q
  // Log-sum-exp of the unmasked scores, [batch, heads, queries]: float32, or float64 for float64 q. Unspecified if all
  // keys are masked.
  Tensor log_sums;
  // Row stride of q, k and v and of their gradients, in elements, at most 2^31 - 1. 0: the rows are adjacent. With a
  // stride, the tensors are columns of a wider matrix: they have the shapes above, and their memory begins at the first
  // row.
  int64_t stride = 0;
  // The result of attention_kept(), or undefined. On tensor cores, attention_forward() writes the dropout decisions to
  // `kept`, and attention_backward() reads them. If `kept` is undefined, attention_backward() draws the decisions
  // again.
  Tensor kept = {};
};

// Gradients of the tensors of a call.
struct AttentionGradients {
  Tensor out;      // gradient of the result (input)
  Tensor q, k, v;  // outputs, with the stride of the call; undefined: not computed
};

// Allocates memory for the dropout decisions of a call on tensor cores: one bit per probability, in rows of a multiple
// of 128 keys. Undefined for other calls and without dropout.
Tensor attention_kept(const AttentionTensors& t, const AttentionOptions& options);

// Computes t.out and t.log_sums.
void attention_forward(Cpu, const AttentionTensors& t, const AttentionOptions& options);
void attention_forward(Cuda, const AttentionTensors& t, const AttentionOptions& options);
// Computes the gradients. Recomputes the probabilities from log_sums.
void attention_backward(Cpu, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionGradients& gradients);
void attention_backward(Cuda, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionGradients& gradients);

// Throws unless ops::attention() accepts these arguments.
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                     const AttentionOptions& options);

namespace ops {

// q [batch, queries, heads, width]; k and v [batch, keys, kv_heads, width]; result [batch, queries, heads, width]. Head
// h attends head h / (heads / kv_heads) of k and v (grouped-query attention, Ainslie et al. 2023); k and v are not
// copied.
//
// Types: float32, bfloat16 or float64. For bfloat16, sums and softmax are in float32. On processors with fast
// AVX512_BF16 (fast_avx512_bf16()), probabilities and score gradients are rounded to bfloat16 before multiplication.
//
// mask [batch, keys] uint8: a key is attended if its value is not 0. If all keys of a batch entry are masked, its
// result and gradients are 0. The CPU skips masked keys; a GPU skips tiles in which all keys are masked. Causal
// attention skips most products of keys that are not attended.
//
// Dropout drops and scales probabilities as in ops::dropout. Throws for other shapes or types, for widths above 128 on
// a GPU, and unless dropout is in [0, 1).
Var attention(const Var& q, const Var& k, const Var& v, const Tensor& mask = {}, const AttentionOptions& options = {});

}  // namespace ops
}  // namespace godwit
