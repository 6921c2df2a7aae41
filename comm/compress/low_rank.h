// PowerSGD's matrix products on a GPU. The order of operations is the same as on the CPU (comm/exchange/power_sgd.cpp).
#pragma once
#include <cstdint>

#include "engine/device.h"

// Kernels of the exchange power_sgd.
namespace godwit::low_rank {

// Shape of M [rows, cols]. Its factors are stored transposed: P as [rank, rows] and Q as [rank, cols].
struct Sizes {
  int64_t rows, cols, rank;  // rank: number of columns of P and Q
};

// P = M·Q.
void project(Cuda device, const Sizes& sizes, const float* m, const float* q, float* p);
// Orthonormalizes the columns of P in place. A linearly dependent column is replaced by a random one. Its key is the
// seed, the step, the column and `element`, the global offset of the matrix's first value.
void orthogonalize(Cuda device, const Sizes& sizes, uint64_t seed, int64_t element, int64_t step, float* p);
// Q = Mᵀ·P.
void project_back(Cuda device, const Sizes& sizes, const float* m, const float* p, float* q);
// M ← P·Qᵀ; with `subtract`, M ← M − P·Qᵀ.
void multiply(Cuda device, const Sizes& sizes, const float* p, const float* q, bool subtract, float* m);

}  // namespace godwit::low_rank
