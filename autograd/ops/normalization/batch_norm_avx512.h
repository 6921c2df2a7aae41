// bfloat16 batch norm with AVX512_BF16 instructions (x86). Only batch_norm*.cpp includes this header. Results are
// bit-identical to the plain loops. For data in a cache, the time is less than half, because rounding takes one
// instruction instead of ten.
#pragma once
#include <cstdint>

#include "engine/half.h"

namespace godwit::detail {

// Source of the ReLU mask in backward: none (no ReLU), recomputed from x, or the output y.
enum class Mask { none, recomputed, output };

// Arguments of the passes. Elements are processed in runs of `lanes` elements. Parameters are repeated to `lanes`
// values.
struct NormPass {
  const bf16 *x, *other;  // other: the residual or null in forward, dy in backward
  bf16* to;
  int64_t lanes;  // a multiple of 32
  const float *mean, *scale, *beta, *offset, *slope;
};

// Whether `channels` is a multiple of 32 and the processor supports AVX512_BF16.
bool fits_norm_avx512(int64_t channels);
// For the n elements that start at x, which is the start of a run: sums[l] += Σ (x - center), squares[l] += Σ (x -
// center)². Sums four runs at a time.
void add_squares_avx512(const bf16* x, int64_t n, int64_t lanes, const float* center, float* sums, float* squares);
// These functions process elements [begin, end). Both bounds are run boundaries.
void normalize_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end);
void input_gradient_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end);

// For the first n elements, four runs at a time: sums[l] += Σ g, products[l] += Σ g · (x - mean). g is dy after the
// ReLU mask. With Mask::output, g is also written to pass.to.
void add_products_avx512(const NormPass& pass, Mask mask, const bf16* y, int64_t n, float* sums, float* products);

}  // namespace godwit::detail
