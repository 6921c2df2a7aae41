// Gather and scatter on a GPU, with indices that all ranks know.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// values[i] = x[indices[i]]. With `clear`, x[indices[i]] is then set to 0. indices: distinct int64 indices.
void gather(Cuda device, const Tensor& indices, const Tensor& x, bool clear, const Tensor& values);
// x[indices[i]] = values[i] · scales[i]. If `scales` is undefined, the factor is 1.
void scatter(Cuda device, const Tensor& indices, const Tensor& values, const Tensor& scales, const Tensor& x);

// sum += x for n values.
void add_values(Cuda device, const float* x, float* sum, int64_t n);

}  // namespace godwit
