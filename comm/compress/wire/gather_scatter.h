// Gather and scatter on a GPU, at indices that all ranks know.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// values[i] = x[places[i]]; with `clear`, x[places[i]] is then set to 0. places: distinct int64 indices.
void gather(Cuda device, const Tensor& places, const Tensor& x, bool clear, const Tensor& values);
// x[places[i]] = values[i] · scales[i]; undefined `scales` means 1.
void scatter(Cuda device, const Tensor& places, const Tensor& values, const Tensor& scales, const Tensor& x);

// sum[i] = x[i] + sum[i] for n values.
void add_values(Cuda device, const float* x, float* sum, int64_t n);

}  // namespace godwit
