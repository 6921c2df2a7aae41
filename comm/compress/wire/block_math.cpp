#include "comm/compress/wire/block_math.h"

#include <algorithm>
#include <bit>

#include "comm/compress/wire/prefetch.h"
#include "engine/row_sum.h"

namespace godwit::block {
namespace {

template <class F>
void on_this_thread(int64_t n, const F& f) {
  detail::run_wide(detail::vector_bits(), f, 0, n);
}

// Σ term(i) for i in [0, n), in the fixed order of block_math.h.
template <class Term>
double sum_over(int64_t n, const Term& term) {
  double result = 0;
  on_this_thread(n, [&](int64_t, int64_t) GODWIT_INLINE {
    if (n <= kSumPiece) return void(result = lane_sum<kSumLanes>(0, n, term));
    double lanes[kSumLanes] = {};
    for (int64_t begin = 0, piece = 0; begin < n; begin += kSumPiece, ++piece)
      lanes[piece % kSumLanes] += lane_sum<kSumLanes>(begin, std::min(n, begin + kSumPiece), term);
    result = fold_lanes(lanes);
  });
  return result;
}

template <class Term>
double sum(const float* x, int64_t n, const Term& term) {
  return sum_over(n, [&](int64_t i) GODWIT_INLINE { return term(x[i]); });
}

// Bits of the largest magnitude: larger for larger magnitudes; at least 0x7F800000 for infinity and NaN.
int32_t largest_bits(const float* x, int64_t n) {
  int32_t largest = 0;
  on_this_thread(n, [=, &largest](int64_t begin, int64_t end) GODWIT_INLINE {
    int32_t own = 0;
    for (int64_t i = begin; i < end; ++i) own = std::max(own, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
    largest = own;
  });
  return largest;
}

}  // namespace

void add(const float* a, const float* b, float* sum, int64_t n) {
  on_this_thread(n, [=](int64_t begin, int64_t end) GODWIT_INLINE {
    GODWIT_IN_PLACE
    for (int64_t i = begin; i < end; ++i) sum[i] = a[i] + b[i];
  });
}

void subtract(const float* a, const float* b, float* difference, int64_t n) {
  on_this_thread(n, [=](int64_t begin, int64_t end) GODWIT_INLINE {
    GODWIT_IN_PLACE
    for (int64_t i = begin; i < end; ++i) difference[i] = a[i] - b[i];
  });
}

void divide(float* x, float by, int64_t n) {
  on_this_thread(n, [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t i = begin; i < end; ++i) x[i] /= by;
  });
}

void add_times(const float* a, float factor, float* x, int64_t n) {
  on_this_thread(n, [=](int64_t begin, int64_t end) GODWIT_INLINE {
    GODWIT_IN_PLACE
    for (int64_t i = begin; i < end; ++i) x[i] += factor * a[i];
  });
}

void choose(const uint32_t* bits, float one, float zero, int64_t n, float* x) {
  on_this_thread(n, [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t at = begin; at < end; at += 32) {
      prefetch(x + at + kPageValues), prefetch(x + at + kPageValues + kLineValues);
      const int32_t word = static_cast<int32_t>(bits[at / 32]);
      const int32_t count = static_cast<int32_t>(std::min<int64_t>(32, end - at));
      for (int32_t j = 0; j < count; ++j) x[at + j] = word & int32_t(1u << j) ? one : zero;
    }
  });
}

bool all_finite(const float* x, int64_t n) { return largest_bits(x, n) < 0x7F800000; }

float largest_magnitude(const float* x, int64_t n) { return std::bit_cast<float>(largest_bits(x, n)); }

double sum_of(const float* x, int64_t n) {
  return sum(x, n, [](float v) GODWIT_INLINE { return static_cast<double>(v); });
}

double sum_of_magnitudes(const float* x, int64_t n) {
  return sum(x, n, [](float v) GODWIT_INLINE { return static_cast<double>(v < 0 ? -v : v); });
}

double dot(const float* a, const float* b, int64_t n) {
  return sum_over(n, [=](int64_t i) GODWIT_INLINE { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

}  // namespace godwit::block
