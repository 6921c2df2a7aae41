// dropout: each element of x becomes 0 with probability p, and is scaled by 1 / (1 - p) else.
#pragma once
#include "autograd/ops/dropout_key.h"
#include "autograd/var.h"

namespace godwit {

// p is in [0, 1). The gradient of x is the same function of that of y: the draws are made again. y may be x.
void dropout_forward(Cpu, const Tensor& x, double p, const DropoutKey& key, const Tensor& y);
void dropout_forward(Cuda, const Tensor& x, double p, const DropoutKey& key, const Tensor& y);

namespace ops {

Var dropout(const Var& x, double p, const DropoutKey& key);  // x itself when p is 0

}  // namespace ops
}  // namespace godwit
