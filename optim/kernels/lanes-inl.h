// Runs a formula over flat arrays with SIMD; included by every kernel source, once per instruction set.
#if defined(GODWIT_OPTIM_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_OPTIM_LANES_INL_H_
#undef GODWIT_OPTIM_LANES_INL_H_
#else
#define GODWIT_OPTIM_LANES_INL_H_
#endif
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls step(d, i) for whole vectors of [begin, end), then for single values. Both do the same IEEE operations on every
// value, so results do not depend on how a range is split.
template <class T, class Step>
HWY_INLINE void for_lanes(int64_t begin, int64_t end, const Step& step) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) step(d, i);
  for (; i < end; ++i) step(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();
#endif
