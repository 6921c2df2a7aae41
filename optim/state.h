// Optimizer state that every rank keeps in full; for the optimizers' sources.
#pragma once
#include "optim/optimizer.h"

namespace godwit {

// Zeros over the real elements of each bucket, the same on all ranks.
std::vector<OptimizerState> state_like(const Buckets& buckets, const std::string& name);
// The tensor of one bucket.
const Tensor& of_bucket(const std::vector<OptimizerState>& state, const Bucket& bucket);
std::vector<OptimizerState> joined(std::vector<OptimizerState> a, const std::vector<OptimizerState>& b);

}  // namespace godwit
