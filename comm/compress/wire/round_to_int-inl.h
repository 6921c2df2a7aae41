// Rounds float vectors to integers and narrows the integers to bytes. Kernel sources include this file once per
// instruction set.
#if defined(GODWIT_COMM_COMPRESS_WIRE_ROUND_TO_INT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_COMM_COMPRESS_WIRE_ROUND_TO_INT_INL_H_
#undef GODWIT_COMM_COMPRESS_WIRE_ROUND_TO_INT_INL_H_
#else
#define GODWIT_COMM_COMPRESS_WIRE_ROUND_TO_INT_INL_H_
#endif
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Wholes = hn::RebindToSigned<Floats>;
#if HWY_TARGET == HWY_SCALAR
constexpr int kGroup = 1;  // number of int32 vectors whose bytes fill one vector
using Bytes = hn::Rebind<int8_t, Wholes>;
#else
constexpr int kGroup = 4;
using Bytes = hn::Repartition<int8_t, Wholes>;
#endif

// x rounded down (kDown) or to nearest even, limited to `most` <= 2²⁰. Values below −2²⁰ give −2²⁰ or less. NaN gives
// an arbitrary integer.
template <bool kDown>
HWY_INLINE hn::Vec<Wholes> round_to_int(hn::Vec<Floats> x, float most) {
  const Floats d;
  x = hn::Min(x, hn::Set(d, most));
#if HWY_TARGET <= HWY_AVX3
  // Values that int32 cannot represent become the minimum of int32.
  constexpr int kRounding = (kDown ? _MM_FROUND_TO_NEG_INF : _MM_FROUND_TO_NEAREST_INT) | _MM_FROUND_NO_EXC;
  return hn::Vec<Wholes>{_mm512_cvt_roundps_epi32(x.raw, kRounding)};
#else
  // Above 2²³, float32 has no fraction bits. Adding 1.5 · 2²³ therefore rounds to nearest even and leaves the integer
  // in the low bits.
  const Wholes whole;
  x = hn::Max(x, hn::Set(d, -0x1p20f));
  if constexpr (kDown) x = hn::Floor(x);
  const auto shift = hn::Set(d, 0x1.8p23f);
  return hn::Sub(hn::BitCast(whole, hn::Add(x, shift)), hn::BitCast(whole, shift));
#endif
}

// The integers of x[kGroup], in order, saturated to −128 … 127.
HWY_INLINE hn::Vec<Bytes> to_bytes(const hn::Vec<Wholes>* x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::DemoteTo(Bytes(), x[0]);
#else
  const Bytes d;
  const hn::Repartition<int16_t, Bytes> d16;
  const auto low = hn::ReorderDemote2To(d16, x[0], x[1]), high = hn::ReorderDemote2To(d16, x[2], x[3]);
#if HWY_TARGET <= HWY_AVX2
  // Every 16 bytes of `mixed` contain four bytes of each vector.
#if HWY_TARGET <= HWY_AVX3
  const hn::Vec<Bytes> mixed{_mm512_packs_epi16(low.raw, high.raw)};
  HWY_ALIGN static constexpr uint32_t kOrder[] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
#else
  const hn::Vec<Bytes> mixed{_mm256_packs_epi16(low.raw, high.raw)};
  HWY_ALIGN static constexpr uint32_t kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};
#endif
  const hn::Repartition<uint32_t, Bytes> quads;
  return hn::BitCast(d, hn::TableLookupLanes(hn::BitCast(quads, mixed), hn::SetTableIndices(quads, kOrder)));
#else
  const hn::Half<Bytes> half;
  return hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
#endif
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();
#endif
