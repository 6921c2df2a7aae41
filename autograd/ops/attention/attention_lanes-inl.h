// Vector primitives of attention: row copies, transposes, exponentials. Included once per instruction set.
#if defined(GODWIT_ATTENTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_ATTENTION_LANES_INL_H_
#undef GODWIT_ATTENTION_LANES_INL_H_
#else
#define GODWIT_ATTENTION_LANES_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "autograd/ops/attention/block_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of `width` elements with row stride `step`: the rows in `index`, or consecutive rows starting at `first`.
template <class T>
struct Rows {
  T* first;
  int64_t step;
  const int32_t* index = nullptr;
  T* operator()(int64_t i) const { return first + (index ? index[i] : i) * step; }
};

constexpr int64_t kAhead = 8;  // rows to prefetch ahead, because the stride defeats the hardware prefetcher

template <class T>
HWY_INLINE void prefetch(int64_t width, const T* row) {
  for (int64_t c = 0; c < width; c += 64 / static_cast<int64_t>(sizeof(T))) hwy::Prefetch(row + c);
}

// to [n, stride] = scale · the first n rows, zero-padded to padded_columns(width).
template <class C, class T>
void copy_rows(int64_t n, int64_t width, C scale, const Rows<T>& rows, int64_t stride, C* to) {
  const int64_t end = padded_columns<C>(width);
  for (int64_t i = 0; i < n; ++i, to += stride) {
    if (i + kAhead < n) prefetch(width, rows(i + kAhead));
    const T* HWY_RESTRICT from = rows(i);
    C* HWY_RESTRICT row = to;
    for (int64_t c = 0; c < width; ++c) row[c] = scale * static_cast<C>(from[c]);
    for (int64_t c = width; c < end; ++c) row[c] = 0;
  }
}

#if HWY_TARGET != HWY_SCALAR
// Transposes 4 × 4 floats: from [4, stride] to [4, stride_to].
HWY_INLINE void transpose_4x4(const float* from, int64_t stride, float* to, int64_t stride_to) {
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + stride);
  const auto r2 = hn::LoadU(d, from + 2 * stride), r3 = hn::LoadU(d, from + 3 * stride);
  const auto even_low = hn::InterleaveLower(d, r0, r2), odd_low = hn::InterleaveLower(d, r1, r3);
  const auto even_high = hn::InterleaveUpper(d, r0, r2), odd_high = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, to);
  hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, to + stride_to);
  hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, to + 2 * stride_to);
  hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, to + 3 * stride_to);
}
#endif

// to [width, stride_to] = the transpose of the first `width` columns of from [n, stride], zero-padded to
// padded_columns(n).
template <class C>
void transpose(int64_t n, int64_t width, const C* from, int64_t stride, C* to, int64_t stride_to) {
  int64_t rows = 0, columns = 0;  // transposed in 4 × 4 blocks
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<C, float>) {
    rows = n / 4 * 4, columns = width / 4 * 4;
    for (int64_t i = 0; i < rows; i += 4)
      for (int64_t c = 0; c < columns; c += 4)
        transpose_4x4(from + i * stride + c, stride, to + c * stride_to + i, stride_to);
  }
#endif
  const int64_t end = padded_columns<C>(n);
  for (int64_t c = 0; c < width; ++c) {
    for (int64_t i = c < columns ? rows : 0; i < n; ++i) to[c * stride_to + i] = from[i * stride + c];
    for (int64_t i = n; i < end; ++i) to[c * stride_to + i] = 0;
  }
}

// The first n rows = scale(row) · the first `width` columns of from [n, stride].
template <class C, class T, class Scale>
void write_rows(int64_t n, int64_t width, const Scale& scale, const C* from, int64_t stride, const Rows<T>& rows) {
  for (int64_t i = 0; i < n; ++i, from += stride) {
    if (i + kAhead < n) prefetch(width, rows(i + kAhead));
    T* HWY_RESTRICT to = rows(i);
    const C factor = scale(i);
    const C* HWY_RESTRICT row = from;
    for (int64_t c = 0; c < width; ++c) to[c] = static_cast<T>(factor * row[c]);
  }
}

// x [n] *= by [n]
template <class C>
void multiply(int64_t n, const C* HWY_RESTRICT by, C* HWY_RESTRICT x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= by[i];
}

// Σ a·b in eight partial sums, which the compiler keeps in vectors.
template <class C, class T>
C dot(int64_t n, const C* HWY_RESTRICT a, const T* HWY_RESTRICT b) {
  C sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; ++l) sums[l] += a[i + l] * static_cast<C>(b[i + l]);
  for (; i < n; ++i) sums[i % 8] += a[i] * static_cast<C>(b[i]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// exp(x) for x at most slightly above 0. The error is at most two units in the last place. The result is 0 for x below
// about -87 (float64: -708). NaN stays NaN.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> exp_lanes(D d, hn::Vec<D> x) {
  constexpr bool kSingle = sizeof(T) == 4;
  constexpr int kDegree = kSingle ? 7 : 13, kMantissa = kSingle ? 23 : 52;
  constexpr T kInverseFactorials[] = {T(1),
                                      T(1),
                                      T(0.5),
                                      T(1.0 / 6),
                                      T(1.0 / 24),
                                      T(1.0 / 120),
                                      T(1.0 / 720),
                                      T(1.0 / 5040),
                                      T(1.0 / 40320),
                                      T(1.0 / 362880),
                                      T(1.0 / 3628800),
                                      T(1.0 / 39916800),
                                      T(1.0 / 479001600),
                                      T(1.0 / 6227020800)};
  // ln 2 = high + low. n · high is exact for all n that occur.
  constexpr T kHigh = kSingle ? T(0x1.63p-1) : T(0x1.62e42feep-1);
  constexpr T kLow = kSingle ? T(-2.12194440e-4) : T(0x1.a39ef35793c76p-33);
  // Adding `magic` rounds y to the nearest integer, which is in the low bits of the sum.
  const auto magic = hn::Set(d, kSingle ? T(0x1.8p23) : T(0x1.8p52));
  const hn::RebindToUnsigned<D> bits;
  const auto shifted = hn::MulAdd(x, hn::Set(d, T(1.44269504088896340736)), magic);
  const auto n = hn::Sub(shifted, magic);
  const auto r = hn::NegMulAdd(n, hn::Set(d, kLow), hn::NegMulAdd(n, hn::Set(d, kHigh), x));
  auto y = hn::Set(d, kInverseFactorials[kDegree]);
  for (int i = kDegree - 1; i >= 0; --i) y = hn::MulAdd(y, r, hn::Set(d, kInverseFactorials[i]));
  const auto power = hn::Add(hn::ShiftLeft<kMantissa>(hn::BitCast(bits, shifted)), hn::BitCast(bits, hn::Set(d, T(1))));
  const auto low = hn::Lt(x, hn::Set(d, kSingle ? T(-87) : T(-708)));
  return hn::IfThenElse(low, hn::Zero(d), hn::Mul(y, hn::BitCast(d, power)));
}

// Replaces x [n] by exp(x - max); n is a multiple of the vector length. Returns the maximum and the sum of the
// exponentials. A NaN propagates to the sum.
template <class T>
std::pair<T, T> exp_of_differences(T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t i = 0; i < n; i += lanes) most = hn::Max(most, hn::LoadU(d, x + i));
  const auto largest = hn::MaxOfLanes(d, most);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto e = exp_lanes(d, hn::Sub(hn::LoadU(d, x + i), largest));
    hn::StoreU(e, d, x + i);
    sum = hn::Add(sum, e);
  }
  return {hn::GetLane(largest), hn::GetLane(hn::SumOfLanes(d, sum))};
}

// Replaces p by exp(p - log_sum), then ds by p · (ds - delta), for n elements; n is a multiple of the vector length.
template <class T>
void score_gradient(int64_t n, T log_sum, T delta, T* HWY_RESTRICT p, T* HWY_RESTRICT ds) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto sum = hn::Set(d, log_sum), shift = hn::Set(d, delta);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto e = exp_lanes(d, hn::Sub(hn::LoadU(d, p + i), sum));
    hn::StoreU(e, d, p + i);
    hn::StoreU(hn::Mul(e, hn::Sub(hn::LoadU(d, ds + i), shift)), d, ds + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();
#endif
