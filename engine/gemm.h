// Product of row-major matrices in float32 and float64.
#pragma once
#include <cstdint>

#include "engine/tensor.h"

namespace godwit {

// Computes c [m, n] = alpha · op(a) [m, k] · op(b) [k, n] + beta · c. op transposes if its flag is set. ld* is the row
// stride in elements. If beta is 0, c is not read. float64 results are bit-identical for any thread count. float32
// results through oneDNN are bit-identical only for the same thread count.
void gemm(Cpu, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Cpu, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace godwit
