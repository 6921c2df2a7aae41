// Values at places that all ranks know, on a GPU.
#pragma once
#include "engine/tensor.h"

namespace godwit {

// values[i] = x[places[i]]; with `clear` they become 0 in x. places: int64, distinct.
void take_places(Cuda device, const Tensor& places, const Tensor& x, bool clear, const Tensor& values);
// x[places[i]] = values[i] · scales[i]; an undefined `scales` is 1 throughout.
void put_places(Cuda device, const Tensor& places, const Tensor& values, const Tensor& scales, const Tensor& x);

// sum ← x + sum of n values.
void add_values(Cuda device, const float* x, float* sum, int64_t n);

}  // namespace godwit
