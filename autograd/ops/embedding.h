// embedding: gathers rows of a table by index. The rows are embeddings of a vocabulary's tokens, or selected
// activations.
#pragma once
#include <optional>

#include "autograd/var.h"

namespace godwit {

// y [n, width] = rows `ids` of table [rows, width]. ids is int32 [n] on the CPU. Each id must be in [0, rows).
void embedding_forward(Cpu, const Tensor& ids, const Tensor& table, const Tensor& y);
void embedding_forward(Cuda, const Tensor& ids, const Tensor& table, const Tensor& y);
// For each id, adds to row `id` of d_table the sum of the rows of dy with this id. The sum is in order of position, in
// compute_t, and rounded once. Row `padding` stays unchanged. A GPU sums pieces of 64 positions, then the pieces, in
// order.
void embedding_backward(Cpu, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding = std::nullopt);
void embedding_backward(Cuda, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding = std::nullopt);

namespace ops {

// Rows `ids`, int32 [n], of the table [rows, width]. The result is [n, width] of the table's type: float32, bfloat16 or
// float64. Throws if an id is not a row of the table; the message gives the position and value of the id. If ids are on
// a GPU, the host waits for them. Row `padding` gets no gradient.
Var embedding(const Tensor& ids, const Var& table, std::optional<int64_t> padding = std::nullopt);

}  // namespace ops
}  // namespace godwit
