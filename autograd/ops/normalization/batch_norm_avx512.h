// Inside batch_norm*.cpp: passes of a bfloat16 batch norm by AVX512_BF16 instructions, x86 only. They give the bits
// that the plain loops give, in less than half their time in a cache: rounding is one instruction, not ten.
#pragma once
#include <cstdint>

#include "engine/half.h"

namespace godwit::detail {

// How backward finds what the relu let pass: there is none, from x by normalising again, or from y.
enum class Mask { none, recomputed, output };

// What the passes read and write: elements in runs of `lanes`, over which the parameters are spread.
struct NormPass {
  const bf16 *x, *other;  // other: the residual or null; of the gradient dy
  bf16* to;
  int64_t lanes;  // in multiples of 32
  const float *mean, *scale, *beta, *offset, *slope;
};

// A multiple of 32 channels, on a processor with the instructions.
bool fits_norm_avx512(int64_t channels);
// Of n elements, where a run begins: sums[l] += Σ (x - center), squares[l] += Σ (x - center)², four runs at a time.
void add_squares_avx512(const bf16* x, int64_t n, int64_t lanes, const float* center, float* sums, float* squares);
// Elements begin to end, where runs of lanes begin and end.
void normalize_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end);
void input_gradient_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end);

// The first n elements, where a run begins: sums[l] += Σ g, products[l] += Σ g · (x - mean), four runs at a time, where
// g is dy behind the relu, and by Mask::output goes to pass.to.
void add_products_avx512(const NormPass& pass, Mask mask, const bf16* y, int64_t n, float* sums, float* products);

}  // namespace godwit::detail
