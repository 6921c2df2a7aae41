// PowerSGD's products on a GPU, in the CPU's order of operations (comm/exchange/power_sgd.cpp).
#pragma once
#include <cstdint>

#include "engine/device.h"

namespace godwit::low_rank {

// M [rows, cols], and its factors, transposed: P [rank, rows], Q [rank, cols].
struct Sizes {
  int64_t rows, cols, rank;
};

// P = M·Q
void project(Cuda device, const Sizes& sizes, const float* m, const float* q, float* p);
// The columns of P made orthogonal and of length 1. One that those before span becomes a random one, named by the seed,
// the step, the column and the matrix's first element in the whole parameter vector.
void orthogonalise(Cuda device, const Sizes& sizes, uint64_t seed, int64_t element, int64_t step, float* p);
// Q = Mᵀ·P
void project_back(Cuda device, const Sizes& sizes, const float* m, const float* p, float* q);
// M ← P·Qᵀ, or with `subtract` M − P·Qᵀ.
void multiply(Cuda device, const Sizes& sizes, const float* p, const float* q, bool subtract, float* m);

}  // namespace godwit::low_rank
