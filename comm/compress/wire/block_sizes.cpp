#include "comm/compress/wire/block_math.h"
#include "engine/row_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/wire/block_sizes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>

HWY_BEFORE_NAMESPACE();
namespace godwit::block {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For a piece of n values: writes the sums of squares of the lanes and returns the bits of the largest magnitude.
int32_t sizes_of_piece(const float* x, int64_t n, double* lanes) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const hn::CappedTag<float, kSumLanes> floats;
  const hn::RebindToSigned<decltype(floats)> bits;
  constexpr int64_t kWide = hn::MaxLanes(decltype(d)()), kNarrow = hn::MaxLanes(decltype(floats)());
  hn::Vec<decltype(d)> sums[kSumLanes / kWide];
  for (auto& sum : sums) sum = hn::Zero(d);
  auto largest = hn::Zero(bits);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int64_t j = 0; j < kSumLanes; j += kNarrow)
      largest = hn::Max(largest, hn::BitCast(bits, hn::Abs(hn::LoadU(floats, x + i + j))));
    for (int64_t j = 0; j < kSumLanes; j += kWide) {
      const auto v = hn::PromoteTo(d, hn::LoadU(narrow, x + i + j));
      sums[j / kWide] = hn::MulAdd(v, v, sums[j / kWide]);  // the square is exact, so fusing does not change the result
    }
  }
  for (int64_t j = 0; j < kSumLanes; j += kWide) hn::StoreU(sums[j / kWide], d, lanes + j);
  int32_t most = hn::GetLane(hn::MaxOfLanes(bits, largest));
  for (int64_t j = 0; i < n; ++i, ++j) {
    lanes[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    most = std::max(most, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  }
  return most;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::block
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::block {

HWY_EXPORT(sizes_of_piece);

Sizes sizes(const float* x, int64_t n) {
  alignas(64) double lanes[kSumLanes];
  const auto of_piece = [&](const float* from, int64_t count) {
    return HWY_DYNAMIC_DISPATCH(sizes_of_piece)(from, count, lanes);
  };
  if (n <= kSumPiece) {
    const float largest = std::bit_cast<float>(of_piece(x, n));
    return {largest, fold_lanes(lanes)};
  }
  int32_t largest = 0;
  double of_pieces[kSumLanes] = {};
  for (int64_t begin = 0, piece = 0; begin < n; begin += kSumPiece, ++piece) {
    largest = std::max(largest, of_piece(x + begin, std::min(kSumPiece, n - begin)));
    of_pieces[piece % kSumLanes] += fold_lanes(lanes);
  }
  return {std::bit_cast<float>(largest), fold_lanes(of_pieces)};
}

}  // namespace godwit::block
#endif  // HWY_ONCE
