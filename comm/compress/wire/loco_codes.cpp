#include "comm/compress/wire/loco_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/wire/loco_codes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "comm/compress/wire/pack_bits.h"
#include "comm/compress/wire/sign_bits.h"
#include "comm/compress/wire/round_to_int-inl.h"

#ifndef GODWIT_COMM_LOCO_CHUNK
#define GODWIT_COMM_LOCO_CHUNK
namespace godwit::loco {
constexpr int64_t kChunk = 1024;  // values that fit the L1 cache; a multiple of the values per word

struct Chunk {
  const float* g;
  int8_t* e;
  const Scales& scales;
  const Settings& settings;
  const uint32_t* random;  // null: round to nearest
  int8_t* codes;           // one byte per code; unused for codes of 1 bit
  float* h;                // written instead of `codes` for codes of 1 bit
};
}  // namespace godwit::loco
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::loco {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace godwit::HWY_NAMESPACE;

// x/by for integers |x| <= 128, correctly rounded. kByParts avoids the division, which takes as long as ten
// multiplications: with r = 1/by and q = x·r, the result is q + r·(x − q·by), whose remainder x − q·by is exact.
template <bool kByParts>
struct Quotient {
  hn::Vec<Floats> by, r;
  explicit Quotient(float divisor) : by(hn::Set(Floats(), divisor)), r(hn::Set(Floats(), 1 / divisor)) {}
  HWY_INLINE hn::Vec<Floats> operator()(hn::Vec<Wholes> whole) const {
    const auto x = hn::ConvertTo(Floats(), whole);
    if constexpr (!kByParts || !HWY_NATIVE_FMA) return hn::Div(x, by);
    const auto q = hn::Mul(x, r);
    return hn::MulAdd(hn::NegMulAdd(q, by, x), r, q);
  }
};
// Whether the remainder and its product with r stay in the range of float32.
bool divides_by_parts(float divisor) { return divisor > 0x1p-90f && divisor < 0x1p90f; }

// Decoded values of 4-bit codes.
#if HWY_TARGET <= HWY_AVX3
struct FourBits {
  hn::Vec<Floats> decoded;
  explicit FourBits(float s) {
    HWY_ALIGN float all[16];
    for (int i = 0; i < 16; ++i) all[i] = static_cast<float>(i < 8 ? i : i - 16) / s;
    decoded = hn::Load(Floats(), all);
  }
  HWY_INLINE hn::Vec<Floats> operator()(hn::Vec<Wholes> code) const {
    return hn::Vec<Floats>{_mm512_permutexvar_ps(code.raw, decoded.raw)};  // indexed by the lowest four bits
  }
};
#else
using FourBits = Quotient<true>;
#endif

template <int kBits, bool kRandom, bool kByParts>
HWY_INLINE void encode_values(const Chunk& c, int64_t n, Counts& counts) {
  const Floats d;
  const Wholes whole;
  const Bytes bytes;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), group = kGroup * lanes;
  const auto s = hn::Set(d, c.scales.code), after = hn::Set(d, c.scales.error_after);
  const std::conditional_t<kBits == 4 && kByParts, FourBits, Quotient<kByParts>> by_s(c.scales.code);
  const Quotient<kByParts> by_before(c.scales.error_before);
  const auto gain_new = hn::Set(d, c.settings.gain_new), gain_old = hn::Set(d, c.settings.gain_old);
  const auto clip = hn::Set(d, c.settings.clip), unit = hn::Set(d, 1 / (2 * c.scales.code));
  int64_t saturated = 0, zero = 0;
  auto finite = hn::Zero(d);  // sum of x·0 over all x: NaN if an x is not finite
  const auto encode = [&](const float* g, int8_t* e, const uint32_t* random, int8_t* codes, float* hs) HWY_ATTR {
    hn::Vec<Wholes> code[kGroup], left[kGroup];
    for (int j = 0; j < kGroup; ++j) {
      const auto x = hn::LoadU(d, g + j * lanes);
      finite = hn::MulAdd(x, hn::Zero(d), finite);
      const auto a = by_before(hn::PromoteTo(whole, hn::LoadU(hn::Rebind<int8_t, Floats>(), e + j * lanes)));
      const auto h = hn::Add(hn::Min(hn::Max(x, hn::Neg(clip)), clip), a);
      auto decoded = unit;
      if constexpr (kBits == 1) {
        hn::StoreU(h, d, hs + j * lanes);
        decoded = hn::IfThenElse(hn::Ge(h, hn::Zero(d)), unit, hn::Neg(unit));
      } else {
        const auto exact = round_to_int<false>(hn::Mul(h, s), 0x1p20f);
        code[j] = hn::Min(hn::Max(exact, hn::Set(whole, -(1 << (kBits - 1)))), hn::Set(whole, (1 << (kBits - 1)) - 1));
        saturated += static_cast<int64_t>(hn::CountTrue(whole, hn::Ne(exact, code[j])));
        decoded = by_s(code[j]);
      }
      auto kept = hn::Mul(hn::Add(hn::Mul(gain_old, a), hn::Mul(gain_new, hn::Sub(h, decoded))), after);
      if constexpr (kRandom) {
        const auto top = hn::ShiftRight<8>(hn::LoadU(hn::RebindToUnsigned<Wholes>(), random + j * lanes));
        kept = hn::MulAdd(hn::ConvertTo(d, hn::BitCast(whole, top)), hn::Set(d, 0x1p-24f), kept);  // exact product
      }
      left[j] = round_to_int<kRandom>(kept, 127);
    }
    hn::StoreU(to_bytes(left), bytes, e);
    if constexpr (kBits == 1) return;
    const auto all = to_bytes(code);
    zero += static_cast<int64_t>(hn::CountTrue(bytes, hn::Eq(all, hn::Zero(bytes))));
    hn::StoreU(all, bytes, codes);
  };
  int64_t i = 0;
  for (; i + group <= n; i += group) encode(c.g + i, c.e + i, kRandom ? c.random + i : nullptr, c.codes + i, c.h + i);
  if (i < n) {
    HWY_ALIGN float g[64] = {};
    HWY_ALIGN int8_t e[64] = {};
    HWY_ALIGN uint32_t random[64] = {};
    std::copy_n(c.g + i, n - i, g);
    std::copy_n(c.e + i, n - i, e);
    if constexpr (kRandom) std::copy_n(c.random + i, n - i, random);
    encode(g, e, random, c.codes + i, c.h + i);
    std::copy_n(e, n - i, c.e + i);
    if constexpr (kBits > 1) zero -= i + group - n;
  }
  counts.saturated += saturated, counts.zero += zero;
  counts.finite &= hn::AllTrue(d, hn::Eq(finite, hn::Zero(d)));
}

template <int kBits, bool kRandom>
HWY_INLINE void encode_values(const Chunk& c, int64_t n, Counts& counts) {
  const bool by_parts = divides_by_parts(c.scales.code) && divides_by_parts(c.scales.error_before);
  by_parts ? encode_values<kBits, kRandom, true>(c, n, counts) : encode_values<kBits, kRandom, false>(c, n, counts);
}

template <int kBits>
HWY_INLINE void encode_values(const Chunk& c, int64_t n, Counts& counts) {
  c.random ? encode_values<kBits, true>(c, n, counts) : encode_values<kBits, false>(c, n, counts);
}

void encode_chunk(const Chunk& c, int64_t n, Counts& counts) {
  switch (c.settings.bits) {
    case 1: return encode_values<1>(c, n, counts);
    case 4: return encode_values<4>(c, n, counts);
    default: return encode_values<8>(c, n, counts);
  }
}

#if HWY_TARGET == HWY_SCALAR
int64_t sum_nibbles(const uint8_t*, int64_t, int, int64_t, int32_t*) { return 0; }
int64_t sum_bytes(const uint8_t*, int64_t, int, int64_t, int32_t*) { return 0; }
#else

constexpr int64_t kAhead = 512;  // bytes; hardware prefetchers do not follow one stream per sender

// sums ← totals[kCount] − shift, or with `add` sums + totals − shift.
template <int64_t kCount, class T>
HWY_INLINE void put_sums(const T* HWY_RESTRICT totals, int32_t shift, bool add, int32_t* HWY_RESTRICT sums) {
  const hn::CappedTag<int32_t, 16> d;
  for (int64_t j = 0; j < kCount; j += static_cast<int64_t>(hn::Lanes(d))) {
    auto sum = hn::Sub(hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, decltype(d)>(), totals + j)), hn::Set(d, shift));
    if (add) sum = hn::Add(sum, hn::LoadU(d, sums + j));
    hn::StoreU(sum, d, sums + j);
  }
}

// Sums the codes that fill whole vectors and returns their number. Sender s's bytes begin at bytes + s·stride.
int64_t sum_nibbles(const uint8_t* bytes, int64_t stride, int senders, int64_t n, int32_t* HWY_RESTRICT sums) {
  constexpr int kFit = 16;  // number of codes plus 8 (0 … 15) whose sum fits a byte
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
      hn::Store(hn::InterleaveLower(d, even, odd), d, totals[0]);  // the first eight codes of every 16 bytes
      hn::Store(hn::InterleaveUpper(d, even, odd), d, totals[1]);
      for (int64_t k = 0; k < 2 * lanes; k += 16)
        put_sums<16>(totals[k / 16 % 2] + k / 32 * 16, 8 * (last - first), first > 0, sums + i + k);
    }
  return i;
}

int64_t sum_bytes(const uint8_t* bytes, int64_t stride, int senders, int64_t n, int32_t* HWY_RESTRICT sums) {
  constexpr int kFit = 256;  // number of codes whose sum fits 16 bits
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

}  // namespace

Counts encode(const float* g, int8_t* e, int64_t n, const Scales& scales, const Settings& settings, const RngKey& rng,
              int64_t element, uint32_t* words) {
  const int bits = settings.bits;
  const bool random = settings.random && !settings.reset;
  alignas(64) uint32_t buffer[kChunk + kRandomSlack];
  alignas(64) uint16_t pairs[kChunk / 2];
  alignas(64) float h[kChunk];
  auto* codes = reinterpret_cast<int8_t*>(pairs);
  Counts counts;
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at);
    if (random)  // prefetches while random numbers are generated
      for (int64_t i = 0; i < count; i += 64) hwy::Prefetch(e + at + count + i);
    const uint32_t* numbers = random ? random_words(rng, element + at, count, buffer, g + at + count) : nullptr;
    uint32_t* to = words + at * bits / 32;
    HWY_DYNAMIC_DISPATCH(encode_chunk)({g + at, e + at, scales, settings, numbers, codes, h}, count, counts);
    if (bits == 1) {
      pack_signs(Cpu{}, h, to, count);
    } else if (bits == 4) {
      std::fill(codes + count, codes + (count + 7) / 8 * 8, int8_t{0});
      auto* bytes = reinterpret_cast<uint8_t*>(to);
      const auto pack = [=, &pairs](int64_t, int64_t end) GODWIT_INLINE { pack_nibbles(pairs, end, bytes); };
      detail::run_wide(detail::vector_bits(), pack, 0, (count + 7) / 8 * 4);
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
    for (int sender = 0; sender < senders; ++sender)  // shifts the code to the top, then back with its sign
      sums[i] += static_cast<int32_t>(word[sender * stride] << (32 - bits - i * bits % 32)) >> (32 - bits);
  }
}

}  // namespace godwit::loco
#endif  // HWY_ONCE
