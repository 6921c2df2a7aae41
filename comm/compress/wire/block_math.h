// Arithmetic on the values of one block, single-threaded. Sums have a fixed order for every vector width. Value i of a
// piece is added to lane i mod 16 of 16 float64 sums. Then the upper half of the lanes is added to the lower half until
// one lane is left. Longer blocks are cut into pieces, so that a GPU can sum pieces in parallel. The sums of pieces are
// added in the same way.
#pragma once
#include <cstdint>

namespace godwit {
constexpr int64_t kSumPiece = 8192;  // number of values per piece
constexpr int kSumLanes = 16;        // number of partial sums of a piece
}  // namespace godwit

// Arithmetic on the values of one block.
namespace godwit::block {

// sum = a + b. The outputs of all functions may alias the inputs.
void add(const float* a, const float* b, float* sum, int64_t n);
void subtract(const float* a, const float* b, float* difference, int64_t n);    // difference = a − b
void divide(float* x, float by, int64_t n);                                     // x ← x / by
void add_times(const float* a, float factor, float* x, int64_t n);              // x += factor·a
void choose(const uint32_t* bits, float one, float zero, int64_t n, float* x);  // sign bit 1 gives `one`, 0 `zero`

bool all_finite(const float* x, int64_t n);             // whether no value is infinite or NaN
float largest_magnitude(const float* x, int64_t n);     // max |x|
double sum_of(const float* x, int64_t n);               // Σ x
double sum_of_magnitudes(const float* x, int64_t n);    // Σ |x|
double dot(const float* a, const float* b, int64_t n);  // Σ a·b

// Sizes of a block. The values may be non-finite; `largest` is then non-finite.
struct Sizes {
  float largest;   // largest magnitude
  double squares;  // sum of squares
};
Sizes sizes(const float* x, int64_t n);  // sizes of x[n]

}  // namespace godwit::block
