// embedding: gathers rows of a table by index: tokens of a vocabulary, or selected rows of activations.
#pragma once
#include <optional>

#include "autograd/var.h"

namespace godwit {

// y [n, width] = rows `ids` of table [rows, width]. ids is int32 [n] on the CPU; each id must be in [0, rows).
void embedding_forward(Cpu, const Tensor& ids, const Tensor& table, const Tensor& y);
void embedding_forward(Cuda, const Tensor& ids, const Tensor& table, const Tensor& y);
// Adds to each row of d_table the rows of dy with this id, summed in order of position in compute_t and rounded once.
// Row `padding` stays unchanged. The GPU sums pieces of 64 positions, then the pieces, in order.
void embedding_backward(Cpu, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding = std::nullopt);
void embedding_backward(Cuda, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding = std::nullopt);

namespace ops {

// Rows `ids`, int32 [n], of the table [rows, width]: [n, width] of the table's type, float32, bfloat16 or float64.
// Throws if an id is not a row of the table; the message gives position and value. For ids on a GPU, the host waits.
// Row `padding` gets no gradient.
Var embedding(const Tensor& ids, const Var& table, std::optional<int64_t> padding = std::nullopt);

}  // namespace ops
}  // namespace godwit
