// For batch_norm*.cpp only: bfloat16 batch norm with AVX512_BF16 instructions (x86). Results are bit-identical to the
// plain loops. With data in a cache, the time is less than half: rounding takes one instruction instead of ten.
#pragma once
#include <cstdint>

#include "engine/half.h"

namespace godwit::detail {

// Source of the ReLU mask in backward: no ReLU, recomputed from x, or the output y.
enum class Mask { none, recomputed, output };

// Arguments of the passes. Elements are processed in runs of `lanes` elements; parameters are repeated to `lanes`
// values.
struct NormPass {
  const bf16 *x, *other;  // other: in forward the residual or null; in backward dy
  bf16* to;
  int64_t lanes;  // a multiple of 32
  const float *mean, *scale, *beta, *offset, *slope;
};

// Whether channels is a multiple of 32 and the processor supports AVX512_BF16.
bool fits_norm_avx512(int64_t channels);
// Over the n elements from x on, which is the start of a run: sums[l] += Σ (x - center), squares[l] += Σ (x - center)².
// Sums four runs at a time.
void add_squares_avx512(const bf16* x, int64_t n, int64_t lanes, const float* center, float* sums, float* squares);
// Process elements [begin, end); both are run boundaries.
void normalize_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end);
void input_gradient_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end);

// Over the first n elements: sums[l] += Σ g, products[l] += Σ g · (x - mean), four runs at a time. g is dy after the
// ReLU mask; with Mask::output, g is also written to pass.to.
void add_products_avx512(const NormPass& pass, Mask mask, const bf16* y, int64_t n, float* sums, float* products);

}  // namespace godwit::detail
