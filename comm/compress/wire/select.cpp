#include "comm/compress/wire/select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/wire/select.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "comm/compress/wire/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t select(const float* x, int64_t n, uint32_t least, uint32_t* indices) {
  const hn::CappedTag<int32_t, 16> d;
  const hn::Rebind<float, decltype(d)> values;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto below = hn::Set(d, static_cast<int32_t>(least) - 1);
  auto here = hn::Iota(d, 0);
  int64_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes, here = hn::Add(here, hn::Set(d, static_cast<int32_t>(lanes)))) {
    prefetch(x + i + kPageValues);
    const auto magnitude = hn::BitCast(d, hn::Abs(hn::LoadU(values, x + i)));
    const auto chosen = hn::Gt(magnitude, below);  // branch-free, since most vectors contain chosen values
    hn::StoreU(hn::Compress(here, chosen), d, reinterpret_cast<int32_t*>(indices) + count);
    count += static_cast<int64_t>(hn::CountTrue(d, chosen));
  }
  for (; i < n; ++i)
    if (magnitude_bits(x[i]) >= least) indices[count++] = static_cast<uint32_t>(i);
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(select);

int64_t indices_of_at_least(const float* x, int64_t n, uint32_t least, uint32_t* indices) {
  return HWY_DYNAMIC_DISPATCH(select)(x, n, least, indices);
}

}  // namespace godwit
#endif
