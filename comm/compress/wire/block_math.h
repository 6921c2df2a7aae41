// Arithmetic on the values of one block, on one thread. Sums have one order whatever the vectors: value i of a piece
// belongs to lane i mod 16 of 16 sums in float64, and the upper half of the lanes is added to the lower until one is
// left. Longer blocks are cut into pieces, so that a GPU sums them at once; the pieces' sums are added the same way.
#pragma once
#include <cstdint>

namespace godwit {
constexpr int64_t kSumPiece = 8192;  // values
constexpr int kSumLanes = 16;
}  // namespace godwit

namespace godwit::block {

// An output may be one of the inputs.
void add(const float* a, const float* b, float* sum, int64_t n);
void subtract(const float* a, const float* b, float* difference, int64_t n);
void divide(float* x, float by, int64_t n);
void add_times(const float* a, float factor, float* x, int64_t n);              // x += factor·a
void choose(const uint32_t* bits, float one, float zero, int64_t n, float* x);  // by sign bits (comm/compress/wire/sign_bits.h)

bool all_finite(const float* x, int64_t n);
float largest_magnitude(const float* x, int64_t n);
double sum_of(const float* x, int64_t n);
double sum_of_magnitudes(const float* x, int64_t n);
double dot(const float* a, const float* b, int64_t n);

// Of a block that may hold any values; `largest` is not finite where one of them is not.
struct Sizes {
  float largest;   // magnitude
  double squares;  // their sum
};
Sizes sizes(const float* x, int64_t n);

double fold_lanes(double* lanes);  // of kSumLanes to their sum, in the order above; what is left in them is of no use

}  // namespace godwit::block
