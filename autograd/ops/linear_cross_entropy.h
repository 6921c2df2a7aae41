// Cross-entropy of a linear layer's outputs over many classes, without keeping all logits.
#pragma once
#include <optional>

#include "autograd/var.h"

namespace godwit::ops {

// softmax_cross_entropy() of the logits x [n, width] · w [classes, width]ᵀ with labels int32 [n]: a scalar of w's type.
// Types of x and w as for linear(). If there are more than 2^21 logits, they are computed in 14 parts, one at a time:
// of the rows in forward, of the classes in backward, which computes the logits again. On the CPU, with 2,048 rows or
// more and x in float32 or float64, the forward pass computes the gradients, if they are wanted, in 10 parts of the
// rows. Throws for other shapes or types, unless each label is `ignore` or in [0, classes), and for `ignore` in a
// captured step.
Var linear_cross_entropy(const Var& x, const Var& w, const Tensor& labels,
                         std::optional<int32_t> ignore = std::nullopt);

}  // namespace godwit::ops
