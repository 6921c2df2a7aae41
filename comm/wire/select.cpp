#include "comm/wire/select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/wire/select.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t select(const float* x, int64_t n, uint32_t least, uint32_t* places) {
  const hn::CappedTag<int32_t, 16> d;
  const hn::Rebind<float, decltype(d)> values;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto below = hn::Set(d, static_cast<int32_t>(least) - 1);
  int64_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto magnitude = hn::BitCast(d, hn::Abs(hn::LoadU(values, x + i)));
    uint64_t ones = 0;
    hn::StoreMaskBits(d, hn::Gt(magnitude, below), reinterpret_cast<uint8_t*>(&ones));
    for (; ones != 0; ones &= ones - 1) places[count++] = static_cast<uint32_t>(i + std::countr_zero(ones));
  }
  for (; i < n; ++i)
    if (magnitude_bits(x[i]) >= least) places[count++] = static_cast<uint32_t>(i);
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(select);

int64_t places_of_at_least(const float* x, int64_t n, uint32_t least, uint32_t* places) {
  return HWY_DYNAMIC_DISPATCH(select)(x, n, least, places);
}

}  // namespace godwit
#endif
