// Matrix product of row-major matrices, float32 and float64.
#pragma once
#include <cstdint>

#include "engine/tensor.h"

namespace godwit {

// c [m, n] = alpha · op(a) [m, k] · op(b) [k, n] + beta · c, where op transposes when its flag is set. ld* is the
// distance between stored rows. c is not read when beta is 0. float64 gives the same bits on any thread count; float32
// through oneDNN the same bits on the same count.
void gemm(Cpu, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Cpu, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace godwit
