#include "comm/compress/wire/signed_means.h"

#include <algorithm>

#include "comm/compress/wire/block_math.h"
#include "engine/row_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/wire/signed_means.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Values in groups of 16; processes two vectors of each group at a time, so that their sums stay in registers.
void add_by_sign(const float* HWY_RESTRICT x, int64_t n, double* HWY_RESTRICT positive, double* HWY_RESTRICT negative) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  for (int64_t lane = 0; lane < 16; lane += 2 * lanes) {
    auto p = hn::LoadU(d, positive + lane), q = hn::LoadU(d, positive + lane + lanes);
    auto r = hn::LoadU(d, negative + lane), s = hn::LoadU(d, negative + lane + lanes);
    for (int64_t i = lane; i < n; i += 16) {
      const auto a = hn::PromoteTo(d, hn::LoadU(narrow, x + i)), b = hn::PromoteTo(d, hn::LoadU(narrow, x + i + lanes));
      p = hn::Add(p, hn::Max(a, zero)), q = hn::Add(q, hn::Max(b, zero));
      r = hn::Add(r, hn::Min(a, zero)), s = hn::Add(s, hn::Min(b, zero));
    }
    hn::StoreU(p, d, positive + lane);
    hn::StoreU(q, d, positive + lane + lanes);
    hn::StoreU(r, d, negative + lane);
    hn::StoreU(s, d, negative + lane + lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(add_by_sign);

void SumsBySign::add(const float* x, int64_t n) {
  while (n > 0) {
    const int64_t count = std::min(n, kSumPiece - count_ % kSumPiece), whole = count / kLanes * kLanes;
    HWY_DYNAMIC_DISPATCH(add_by_sign)(x, whole, positive_, negative_);
    for (int64_t j = 0; whole + j < count; ++j) {
      const double value = static_cast<double>(x[whole + j]);
      positive_[j] += std::max(value, 0.0);
      negative_[j] += std::min(value, 0.0);
    }
    count_ += count, x += count, n -= count;
    if (count_ % kSumPiece == 0) end_piece();
  }
}

void SumsBySign::end_piece() {
  const int64_t lane = (count_ / kSumPiece - 1) % kLanes;
  positive_pieces_[lane] += fold_lanes(positive_);
  negative_pieces_[lane] += fold_lanes(negative_);
  std::fill_n(positive_, kLanes, 0.0);
  std::fill_n(negative_, kLanes, 0.0);
}

double SumsBySign::total(const Lanes& lanes, const Lanes& pieces) const {
  double last[kLanes], sums[kLanes];
  std::copy_n(lanes, kLanes, last);
  std::copy_n(pieces, kLanes, sums);
  sums[count_ / kSumPiece % kLanes] += fold_lanes(last);
  return fold_lanes(sums);
}

}  // namespace godwit
#endif
