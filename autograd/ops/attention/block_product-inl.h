// Vectorized matrix products of blocks that fit in the cache. Included once per instruction set.
#if defined(GODWIT_BLOCK_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_BLOCK_PRODUCT_INL_H_
#undef GODWIT_BLOCK_PRODUCT_INL_H_
#else
#define GODWIT_BLOCK_PRODUCT_INL_H_
#endif
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTileRows = 6;  // with two vectors per row, twelve sums: enough for two multiply-adds per cycle

// Columns of a block, rounded up to whole pairs of vectors.
template <class T>
int64_t padded_columns(int64_t n) {
  const int64_t pair = 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  return (n + pair - 1) / pair * pair;
}

// Row stride for n columns: an odd number of cache lines, so that columns use all cache sets.
template <class T>
int64_t row_stride(int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(T);
  return ((padded_columns<T>(n) + kLine - 1) / kLine | 1) * kLine;
}

// c [rows, two vectors] = (add ? c : 0) + a · b. a is [rows, k], or [k, rows] if transposed. b is [k, two vectors].
// ld*: row strides in elements.
template <bool transposed, int rows, class T>
HWY_INLINE void tile(int64_t k, const T* HWY_RESTRICT a, int64_t lda, const T* HWY_RESTRICT b, int64_t ldb,
                     T* HWY_RESTRICT c, int64_t ldc, bool add) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  auto l0 = zero, l1 = zero, l2 = zero, l3 = zero, l4 = zero, l5 = zero;
  auto h0 = zero, h1 = zero, h2 = zero, h3 = zero, h4 = zero, h5 = zero;
  const int64_t across = transposed ? 1 : lda, along = transposed ? lda : 1;
  for (int64_t i = 0; i < k; ++i, a += along, b += ldb) {
    const auto low = hn::LoadU(d, b), high = hn::LoadU(d, b + lanes);
    const auto row = [&](auto& l, auto& h, int64_t r) HWY_ATTR {
      const auto x = hn::Set(d, a[r * across]);
      l = hn::MulAdd(x, low, l);
      h = hn::MulAdd(x, high, h);
    };
    row(l0, h0, 0);
    if constexpr (rows > 1) row(l1, h1, 1);
    if constexpr (rows > 2) row(l2, h2, 2);
    if constexpr (rows > 3) row(l3, h3, 3);
    if constexpr (rows > 4) row(l4, h4, 4);
    if constexpr (rows > 5) row(l5, h5, 5);
  }
  const auto store = [&](auto l, auto h, T* to) HWY_ATTR {
    if (add) {
      l = hn::Add(l, hn::LoadU(d, to));
      h = hn::Add(h, hn::LoadU(d, to + lanes));
    }
    hn::StoreU(l, d, to);
    hn::StoreU(h, d, to + lanes);
  };
  store(l0, h0, c);
  if constexpr (rows > 1) store(l1, h1, c + ldc);
  if constexpr (rows > 2) store(l2, h2, c + 2 * ldc);
  if constexpr (rows > 3) store(l3, h3, c + 3 * ldc);
  if constexpr (rows > 4) store(l4, h4, c + 4 * ldc);
  if constexpr (rows > 5) store(l5, h5, c + 5 * ldc);
}

// c [m, n] = (add ? c : 0) + op(a) [m, k] · b [k, n]. n is a multiple of two vectors. Sums over k are in order.
template <bool transposed, class T>
void product(int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc,
             bool add) {
  const int64_t pair = 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), step = transposed ? 1 : lda;
  for (int64_t column = 0; column < n; column += pair) {
    const auto rest = [&]<int rows>(int64_t i) HWY_ATTR {
      tile<transposed, rows>(k, a + i * step, lda, b + column, ldb, c + i * ldc + column, ldc, add);
    };
    int64_t i = 0;
    for (; i + kTileRows <= m; i += kTileRows) rest.template operator()<kTileRows>(i);
    switch (m - i) {
      case 1:
        rest.template operator()<1>(i);
        break;
      case 2:
        rest.template operator()<2>(i);
        break;
      case 3:
        rest.template operator()<3>(i);
        break;
      case 4:
        rest.template operator()<4>(i);
        break;
      case 5:
        rest.template operator()<5>(i);
        break;
      default:
        break;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();
#endif
