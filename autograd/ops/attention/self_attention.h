// Self-attention on the output of one linear layer, which computes queries, keys and values.
#pragma once
#include "autograd/ops/attention/attention.h"

namespace godwit {

// qkv [rows, 3 · width]: the queries, keys and values of each row, in this order. q, k, v: [rows, width].
void split_qkv(Cpu, const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v);
void split_qkv(Cuda, const Tensor& qkv, const Tensor& q, const Tensor& k, const Tensor& v);

// The order of the columns of ops::self_attention()'s input.
enum class QkvOrder { queries_first, values_first };  // queries, keys, values; values, keys, queries

namespace ops {

// attention() of the queries, keys and values of each token, which are columns of qkv [batch · length, 3 · width].
// There are `heads` heads of width / heads. mask is [batch, length], as for attention(). Returns [batch · length,
// width]. Throws for other shapes or types.
Var self_attention(const Var& qkv, int64_t batch, int64_t heads, const AttentionOptions& options = {},
                   const Tensor& mask = {}, QkvOrder order = QkvOrder::queries_first);

}  // namespace ops
}  // namespace godwit
