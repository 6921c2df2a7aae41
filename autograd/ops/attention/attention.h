// Scaled dot-product attention: out = softmax(scale · q·kᵀ)·v for every head. Memory is linear in the sequence lengths.
#pragma once
#include <optional>

#include "autograd/ops/dropout_key.h"
#include "autograd/var.h"

namespace godwit {

struct AttentionOptions {
  std::optional<double> scale = {};  // default: 1/√width
  // Dropout of the probabilities. Probability (b, h, i, j) uses word ((b·heads + h)·queries + i)·keys + j of the key.
  double dropout = 0;
  DropoutKey key = {};  // key of the dropout's random numbers
  // Query i attends keys 0 to i + keys - queries: the last query attends all keys. Takes no mask; queries <= keys.
  bool causal = false;
};

// The tensors of one call. All except mask and log_sums have the same type: float32, bfloat16 or float64.
struct AttentionTensors {
  Tensor q, k, v;   // q [batch, queries, heads, width]; k, v [batch, keys, kv_heads, width]
  Tensor mask;      // [batch, keys] uint8: 0 masks a key; undefined: no mask
  Tensor out;       // like q
  // log-sum-exp of the unmasked scores, [batch, heads, queries] float32, or float64 for float64 q; unspecified if all
  // keys are masked.
  Tensor log_sums;
  // Row stride of q, k and v and of their gradients, in elements, at most 2^31 - 1; 0: the rows are adjacent. With a
  // stride, the tensors are columns of a wider matrix. They have the shapes above and begin at their first row.
  int64_t stride = 0;
  // The result of attention_kept(), or undefined. On tensor cores, attention_forward() writes the dropout decisions to
  // `kept` for attention_backward(), which draws them again if `kept` is undefined.
  Tensor kept = {};
};

// Gradients of the tensors of a call.
struct AttentionGradients {
  Tensor out;      // input
  Tensor q, k, v;  // outputs, with the stride of the call; an undefined tensor is not computed
};

// New memory for the dropout decisions of a call on tensor cores, one bit per probability, in rows of a multiple of 128
// keys. Undefined for other calls and without dropout.
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
// h attends head h / (heads / kv_heads) of k and v (grouped-query attention, Ainslie et al. 2023), without copies of k
// and v. Types: float32, bfloat16 or float64. For bfloat16, sums and softmax are in float32; on processors with fast
// AVX512_BF16 (fast_avx512_bf16()), probabilities and score gradients are rounded to bfloat16 before multiplication.
// mask [batch, keys] uint8: a key is attended if its value is not 0. The CPU skips masked keys, a GPU skips tiles of
// masked keys. If all keys of a batch entry are masked, its result and gradients are 0. Causal attention skips most
// products of keys that are not attended. Dropout drops and scales probabilities as in ops::dropout. Throws for other
// shapes or types, for widths above 128 on a GPU, and unless dropout is in [0, 1).
Var attention(const Var& q, const Var& k, const Var& v, const Tensor& mask = {}, const AttentionOptions& options = {});

}  // namespace ops
}  // namespace godwit
