// embedding: rows of a table by their numbers: words of a vocabulary, or chosen rows of activations.
#pragma once
#include <optional>

#include "autograd/var.h"

namespace godwit {

// y [n, width] = table [rows, width] at ids, int32 [n] on the CPU, all of them in [0, rows).
void embedding_forward(Cpu, const Tensor& ids, const Tensor& table, const Tensor& y);
void embedding_forward(Cuda, const Tensor& ids, const Tensor& table, const Tensor& y);
// Adds to each row of d_table the rows of dy of its id, summed in order of position in compute_t and rounded once;
// to row `padding` nothing. A GPU sums pieces of 64 positions, then the pieces, in order.
void embedding_backward(Cpu, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding = std::nullopt);
void embedding_backward(Cuda, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding = std::nullopt);

namespace ops {

// [n, width] of the table's type, which is float32, bfloat16 or float64. Throws, naming position and value, where an id
// is no row of the table. The gradient costs the table's memory once, then the rows that were picked; row `padding`, if
// one is named, gets none.
Var embedding(const Tensor& ids, const Var& table, std::optional<int64_t> padding = std::nullopt);

}  // namespace ops
}  // namespace godwit
