#include "comm/wire/loco_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/wire/loco_codes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/wire/pack_bits.h"
#include "comm/wire/sign_bits.h"

#ifndef GODWIT_COMM_LOCO_CHUNK
#define GODWIT_COMM_LOCO_CHUNK
namespace godwit::loco {
constexpr int64_t kChunk = 1024;  // values in the first-level cache, a multiple of those of a word

struct Chunk {
  const float* g;
  int8_t* e;
  const Scales& scales;
  const Settings& settings;
  const uint32_t* random;  // null: nearest
  uint8_t* codes;          // a byte each; of one bit not used,
  float* h;                // but these
};
}  // namespace godwit::loco
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::loco {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// From 2²³ on float32 has no fractions: adding 1.5 · 2²³ rounds to nearest even, and the sum's bits are those of the whole
// number plus kWhole. For larger numbers they still grow with x, and are negative for negative ones.
constexpr int32_t kWhole = 0x4B400000;

template <class D>
HWY_INLINE auto whole(D d, hn::Vec<D> x) {
  return hn::BitCast(hn::RebindToSigned<D>(), hn::Add(x, hn::BitCast(d, hn::Set(hn::RebindToSigned<D>(), kWhole))));
}

template <class D>
HWY_INLINE auto clamp(D d, hn::Vec<D> x, int32_t low, int32_t high) {
  return hn::Min(hn::Max(x, hn::Set(d, kWhole + low)), hn::Set(d, kWhole + high));
}

template <class D>
HWY_INLINE void store_bytes(D, hn::Vec<D> x, uint8_t* to) {
  const hn::Rebind<uint8_t, D> bytes;
  hn::StoreU(hn::TruncateTo(bytes, hn::BitCast(hn::RebindToUnsigned<D>(), x)), bytes, to);
}

// x/by for whole numbers |x| <= 128, to the bit: r = 1/by, q = x·r, then q plus the remainder's share, the remainder x − q·by
// being exact. (A division takes as long as ten multiplications.)
template <class D>
struct Quotient {
  hn::Vec<D> by, r;
  Quotient(D d, float divisor) : by(hn::Set(d, divisor)), r(hn::Set(d, 1 / divisor)) {}
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> x) const {
    if constexpr (hn::MaxLanes(D()) == 1 || !HWY_NATIVE_FMA) return hn::Div(x, by);
    const auto q = hn::Mul(x, r);
    return hn::MulAdd(hn::NegMulAdd(q, by, x), r, q);
  }
};
// Neither the remainder nor its share may be too small for float32.
bool divides_by_parts(float divisor) { return divisor > 0x1p-90f && divisor < 0x1p90f; }

// Values [begin, end), whole vectors.
template <bool kOneBit, bool kRandom, class D>
HWY_INLINE void encode_range(D d, const Chunk& c, int64_t begin, int64_t end, Counts& counts) {
  const hn::RebindToSigned<D> di;
  const int32_t low = -(1 << (c.settings.bits - 1)), high = -1 - low;
  const auto s = hn::Set(d, c.scales.code), after = hn::Set(d, c.scales.error_after);
  const Quotient<D> by_s(d, c.scales.code), by_before(d, c.scales.error_before);
  const auto gain_new = hn::Set(d, c.settings.gain_new), gain_old = hn::Set(d, c.settings.gain_old);
  const auto clip = hn::Set(d, c.settings.clip), unit = hn::Set(d, 1 / (2 * c.scales.code));
  const float* HWY_RESTRICT g = c.g;
  auto *HWY_RESTRICT e = c.e;
  uint8_t *HWY_RESTRICT codes = c.codes;
  int64_t saturated = 0, zero = 0;
  auto largest = hn::Zero(di);  // the bits of |g|, to find what is not finite
  for (int64_t i = begin; i < end; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, g + i), size = hn::Abs(x);
    largest = hn::Max(largest, hn::BitCast(di, size));
    const auto kept = hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, D>(), e + i));
    const auto a = by_before(hn::ConvertTo(d, kept));
    const auto h = hn::Add(hn::CopySign(hn::Min(size, clip), x), a);
    auto decoded = unit;
    if constexpr (kOneBit) {
      hn::StoreU(h, d, c.h + i);
      decoded = hn::IfThenElse(hn::Ge(h, hn::Zero(d)), unit, hn::Neg(unit));
    } else {
      const auto exact = whole(d, hn::Mul(h, s)), code = clamp(di, exact, low, high);
      saturated += static_cast<int64_t>(hn::CountTrue(di, hn::Ne(exact, code)));
      zero += static_cast<int64_t>(hn::CountTrue(di, hn::Eq(code, hn::Set(di, kWhole))));
      store_bytes(di, code, codes + i);
      decoded = by_s(hn::Sub(hn::BitCast(d, code), hn::BitCast(d, hn::Set(di, kWhole))));
    }
    auto left = hn::Mul(hn::Add(hn::Mul(gain_old, a), hn::Mul(gain_new, hn::Sub(h, decoded))), after);
    if constexpr (kRandom) {
      const auto random = hn::ShiftRight<8>(hn::LoadU(hn::RebindToUnsigned<D>(), c.random + i));
      left = hn::Add(left, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, random)), hn::Set(d, 0x1p-24f)));
      left = hn::Floor(left);
    }
    store_bytes(di, clamp(di, whole(d, left), -128, 127), reinterpret_cast<uint8_t*>(e) + i);
  }
  constexpr int32_t kInfinity = 0x7F800000;  // the bits of ∞; those of a NaN without its sign are larger
  counts.saturated += saturated, counts.zero += zero;
  counts.finite &= hn::AllTrue(di, hn::Lt(largest, hn::Set(di, kInfinity)));
}

template <bool kOneBit, bool kRandom>
HWY_INLINE void encode_values(const Chunk& c, int64_t n, Counts& counts) {
  const hn::CappedTag<float, 16> many;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(many));
  const bool by_parts = divides_by_parts(c.scales.code) && divides_by_parts(c.scales.error_before);
  const int64_t vectors = by_parts ? n / lanes * lanes : 0;
  encode_range<kOneBit, kRandom>(many, c, 0, vectors, counts);
  encode_range<kOneBit, kRandom>(hn::CappedTag<float, 1>(), c, vectors, n, counts);
}

void encode_chunk(const Chunk& c, int64_t n, Counts& counts) {
  if (c.settings.bits == 1) return c.random ? encode_values<true, true>(c, n, counts) : encode_values<true, false>(c, n, counts);
  c.random ? encode_values<false, true>(c, n, counts) : encode_values<false, false>(c, n, counts);
}

#if HWY_TARGET == HWY_SCALAR
int64_t sum_nibbles(const uint8_t*, int64_t, int, int64_t, int32_t*) { return 0; }
int64_t sum_bytes(const uint8_t*, int64_t, int, int64_t, int32_t*) { return 0; }
#else

constexpr int64_t kAhead = 512;  // bytes: the senders' codes are more streams than processors foresee

// totals[kCount] − shift, added to what is there or not.
template <int64_t kCount, class T>
HWY_INLINE void put_sums(const T* HWY_RESTRICT totals, int32_t shift, bool add, int32_t* HWY_RESTRICT sums) {
  const hn::CappedTag<int32_t, 16> d;
  for (int64_t j = 0; j < kCount; j += static_cast<int64_t>(hn::Lanes(d))) {
    auto sum = hn::Sub(hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, decltype(d)>(), totals + j)), hn::Set(d, shift));
    if (add) sum = hn::Add(sum, hn::LoadU(d, sums + j));
    hn::StoreU(sum, d, sums + j);
  }
}

// Sums of as many codes as whole vectors hold; returns how many. Sender s's bytes begin at bytes + s·stride.
int64_t sum_nibbles(const uint8_t* bytes, int64_t stride, int senders, int64_t n, int32_t* HWY_RESTRICT sums) {
  constexpr int kFit = 16;  // codes plus 8, 0 … 15, whose sum a byte holds
  const hn::CappedTag<uint8_t, 64> d;
  const hn::Repartition<uint16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto four = hn::Set(d, uint8_t{15}), sign = hn::Set(d, uint8_t{0x88});
  HWY_ALIGN uint8_t totals[2][64];
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes)
    for (int first = 0; first < senders; first += kFit) {
      const int last = std::min(first + kFit, senders);
      auto even = hn::Zero(d), odd = hn::Zero(d);
      for (int s = first; s < last; ++s) {
        const uint8_t* from = bytes + s * stride + i / 2;
        hwy::Prefetch(from + kAhead);
        const auto v = hn::Xor(hn::LoadU(d, from), sign);
        even = hn::Add(even, hn::And(v, four));
        odd = hn::Add(odd, hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, v))), four));
      }
      hn::Store(hn::InterleaveLower(d, even, odd), d, totals[0]);  // of every 16 bytes, the codes of the first eight
      hn::Store(hn::InterleaveUpper(d, even, odd), d, totals[1]);
      for (int64_t k = 0; k < 2 * lanes; k += 16)
        put_sums<16>(totals[k / 16 % 2] + k / 32 * 16, 8 * (last - first), first > 0, sums + i + k);
    }
  return i;
}

int64_t sum_bytes(const uint8_t* bytes, int64_t stride, int senders, int64_t n, int32_t* HWY_RESTRICT sums) {
  constexpr int kFit = 256;  // codes whose sum 16 bits hold
  const hn::CappedTag<int16_t, 32> d;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN int16_t totals[32];
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int first = 0; first < senders; first += kFit) {
      auto total = hn::Zero(d);
      for (int s = first; s < std::min(first + kFit, senders); ++s) {
        const auto* from = reinterpret_cast<const int8_t*>(bytes) + s * stride + i;
        hwy::Prefetch(from + kAhead);
        total = hn::Add(total, hn::PromoteTo(d, hn::LoadU(d8, from)));
      }
      hn::Store(total, d, totals);
      put_sums<hn::MaxLanes(d)>(totals, 0, first > 0, sums + i);
    }
  return i;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace godwit::loco
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::loco {
namespace {

HWY_EXPORT(encode_chunk);
HWY_EXPORT(sum_nibbles);
HWY_EXPORT(sum_bytes);

// The low four bits of each byte of pairs[n], moved together.
void pack_nibbles(const uint16_t* pairs, int64_t n, uint8_t* to) {
  const auto pack = [=](int64_t begin, int64_t end) GODWIT_INLINE {
    const uint16_t* __restrict from = pairs;
    uint8_t* __restrict out = to;  // a copy: stores of bytes might change what `to` refers to
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<uint8_t>((from[i] & 15) | (from[i] >> 4 & 0xF0));
  };
  detail::run_wide(detail::vector_bits(), pack, 0, n);
}

// To the first-level cache; beyond an array's end as well.
void fetch_chunk(const float* g, const int8_t* e) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < kChunk * static_cast<int64_t>(sizeof(float)); i += kLine)
    hwy::Prefetch(reinterpret_cast<const char*>(g) + i);
  for (int64_t i = 0; i < kChunk; i += kLine) hwy::Prefetch(e + i);
}

}  // namespace

Counts encode(const float* g, int8_t* e, int64_t n, const Scales& scales, const Settings& settings, const Draws& draws,
              int64_t element, uint32_t* words) {
  const int bits = settings.bits;
  const bool random = settings.random && !settings.reset;
  alignas(64) uint32_t buffer[kChunk + kRandomSlack];
  alignas(64) uint16_t pairs[kChunk / 2];
  alignas(64) float h[kChunk];
  auto* codes = reinterpret_cast<uint8_t*>(pairs);
  Counts counts;
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at);
    if (random) fetch_chunk(g + at + kChunk, e + at + kChunk);  // while the numbers are drawn
    const uint32_t* numbers = random ? random_words(draws, element + at, count, buffer) : nullptr;
    uint32_t* to = words + at * bits / 32;
    HWY_DYNAMIC_DISPATCH(encode_chunk)({g + at, e + at, scales, settings, numbers, codes, h}, count, counts);
    if (bits == 1) {
      pack_signs(Cpu{}, h, to, count);
    } else if (bits == 4) {
      std::fill(codes + count, codes + (count + 7) / 8 * 8, uint8_t{0});
      pack_nibbles(pairs, (count + 7) / 8 * 4, reinterpret_cast<uint8_t*>(to));
    } else {
      to[(count - 1) / 4] = 0;
      std::memcpy(to, codes, static_cast<size_t>(count));
    }
    if (settings.reset) std::memset(e + at, 0, static_cast<size_t>(count));
  }
  return counts;
}

void sum_codes(const uint32_t* words, int64_t stride, int senders, int bits, int64_t n, int32_t* sums) {
  if (bits == 1) return sum_signs(Cpu{}, words, senders, stride, sums, n);
  const auto* bytes = reinterpret_cast<const uint8_t*>(words);
  int64_t i = bits == 4 ? HWY_DYNAMIC_DISPATCH(sum_nibbles)(bytes, 4 * stride, senders, n, sums)
                        : HWY_DYNAMIC_DISPATCH(sum_bytes)(bytes, 4 * stride, senders, n, sums);
  for (; i < n; ++i) {
    const uint32_t* word = words + i * bits / 32;
    sums[i] = 0;
    for (int sender = 0; sender < senders; ++sender)  // the code's highest bit to the word's, and down again with its sign
      sums[i] += static_cast<int32_t>(word[sender * stride] << (32 - bits - i * bits % 32)) >> (32 - bits);
  }
}

}  // namespace godwit::loco
#endif  // HWY_ONCE
