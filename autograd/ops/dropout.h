// dropout: sets each element of x to 0 with probability p and scales the others by 1 / (1 - p).
#pragma once
#include "autograd/ops/dropout_key.h"
#include "autograd/var.h"

namespace godwit {

// p is in [0, 1). y may be x. Backward is the same function applied to dy; the mask is regenerated from the key.
void dropout_forward(Cpu, const Tensor& x, double p, const DropoutKey& key, const Tensor& y);
void dropout_forward(Cuda, const Tensor& x, double p, const DropoutKey& key, const Tensor& y);

namespace ops {

// Returns x itself if p is 0. Throws unless p is in [0, 1).
Var dropout(const Var& x, double p, const DropoutKey& key);

}  // namespace ops
}  // namespace godwit
