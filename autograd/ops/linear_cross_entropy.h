// Cross-entropy of a linear layer's outputs over many classes. Most logits are not kept in memory.
#pragma once
#include <optional>

#include "autograd/var.h"

namespace godwit::ops {

// softmax_cross_entropy() of the logits x [n, width] · w [classes, width]ᵀ with labels int32 [n]: a scalar of w's type.
// x and w have types as for linear(). Throws for other shapes or types, for a label that is neither `ignore` nor in [0,
// classes), and for `ignore` in a captured step.
//
// More than 2^21 logits are computed in 14 parts, one at a time. The forward pass divides the rows into parts. The
// backward pass divides the classes into parts and computes the logits again. On the CPU, with 2,048 rows or more and x
// in float32 or float64, the forward pass instead uses 10 parts of the rows and also computes the gradients if they are
// needed.
Var linear_cross_entropy(const Var& x, const Var& w, const Tensor& labels,
                         std::optional<int32_t> ignore = std::nullopt);

}  // namespace godwit::ops
