#include "comm/wire/sign_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/wire/sign_bits.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h includes this file once per instruction set.
#include <algorithm>
#include <bit>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
static_assert(std::endian::native == std::endian::little, "bit j of a word is bit j mod 8 of byte j / 8");

constexpr size_t kMaxPlanes = 15;  // of a count up to 32767

// Bits [shift, shift + lanes) of a word.
template <class D>
HWY_INLINE hn::Mask<D> load_mask(D d, const uint32_t word, size_t shift) {
  const uint64_t bits = word >> shift;
  uint8_t bytes[8];
  std::memcpy(bytes, &bits, sizeof(bits));
  return hn::LoadMaskBits(d, bytes);
}

void pack_words(const float* HWY_RESTRICT x, uint32_t* HWY_RESTRICT words, int64_t count) {
  const hn::CappedTag<float, 32> d;
  const auto zero = hn::Zero(d);
  for (int64_t w = 0; w < count; ++w, x += 32) {
    uint32_t word = 0;
    for (size_t j = 0; j < 32; j += hn::Lanes(d)) {
      uint8_t bytes[8] = {};
      hn::StoreMaskBits(d, hn::Ge(hn::LoadU(d, x + j), zero), bytes);
      uint32_t bits;
      std::memcpy(&bits, bytes, sizeof(bits));
      word |= bits << j;
    }
    words[w] = word;
  }
}

void unpack_words(const uint32_t* HWY_RESTRICT words, float* HWY_RESTRICT x, int64_t count) {
  const hn::CappedTag<float, 32> d;
  const auto plus = hn::Set(d, 1.0f), minus = hn::Set(d, -1.0f);
  for (int64_t w = 0; w < count; ++w, x += 32)
    for (size_t j = 0; j < 32; j += hn::Lanes(d))
      hn::StoreU(hn::IfThenElse(load_mask(d, words[w], j), plus, minus), d, x + j);
}

// Sums Lanes(d) words of every sender. Bit p of all the counts lies in plane p: one addition counts 32 values a word.
template <class D>
HWY_INLINE void sum_block(D d, const uint32_t* HWY_RESTRICT words, int64_t senders, int64_t stride,
                          uint16_t* HWY_RESTRICT sum) {
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN uint32_t planes[kMaxPlanes * hn::MaxLanes(D())];
  const size_t used = std::bit_width(static_cast<uint64_t>(senders));
  for (size_t p = 0; p < used; ++p) hn::Store(hn::Zero(d), d, planes + p * lanes);
  for (int64_t s = 0; s < senders; ++s) {
    auto carry = hn::LoadU(d, words + s * stride);
    const size_t reached = std::bit_width(static_cast<uint64_t>(s) + 1);
    for (size_t p = 0; p < reached; ++p) {
      const auto plane = hn::Load(d, planes + p * lanes);
      hn::Store(hn::Xor(plane, carry), d, planes + p * lanes);
      carry = hn::And(plane, carry);
    }
  }
  const hn::CappedTag<uint16_t, 32> d16;
  const auto none = hn::Set(d16, static_cast<uint16_t>(-senders));
  for (size_t lane = 0; lane < lanes; ++lane)
    for (size_t j = 0; j < 32; j += hn::Lanes(d16)) {
      auto total = none;
      for (size_t p = 0; p < used; ++p) {
        const auto weight = hn::Set(d16, static_cast<uint16_t>(2u << p));
        total = hn::Add(total, hn::IfThenElseZero(load_mask(d16, planes[p * lanes + lane], j), weight));
      }
      hn::StoreU(total, d16, sum + lane * 32 + j);
    }
}

void sum_words(const uint32_t* words, int64_t senders, int64_t stride, uint16_t* sum, int64_t count) {
  const hn::CappedTag<uint32_t, 16> wide;
  const hn::CappedTag<uint32_t, 1> single;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t w = 0;
  for (; w + lanes <= count; w += lanes) sum_block(wide, words + w, senders, stride, sum + 32 * w);
  for (; w < count; ++w) sum_block(single, words + w, senders, stride, sum + 32 * w);
}

// The counts begin at 2^used − half, so that they carry into plane `used` where half of the senders, rounded up, have a 1.
template <class D>
HWY_INLINE void majority_block(D d, const uint32_t* HWY_RESTRICT words, int64_t senders, int64_t stride,
                               uint32_t* HWY_RESTRICT votes) {
  const size_t lanes = hn::Lanes(d);
  const size_t used = std::min<size_t>(std::bit_width(static_cast<uint64_t>(senders)), kMaxPlanes);
  const uint64_t begin = (uint64_t{1} << used) - static_cast<uint64_t>((senders + 1) / 2);
  HWY_ALIGN uint32_t planes[(kMaxPlanes + 1) * hn::MaxLanes(D())];
  for (size_t p = 0; p <= used; ++p)
    hn::Store(hn::Set(d, begin >> p & 1 ? ~uint32_t{0} : 0), d, planes + p * lanes);
  for (int64_t s = 0; s < senders; ++s) {
    auto carry = hn::LoadU(d, words + s * stride);
    for (size_t p = 0; p <= used; ++p) {
      const auto plane = hn::Load(d, planes + p * lanes);
      hn::Store(hn::Xor(plane, carry), d, planes + p * lanes);
      carry = hn::And(plane, carry);
    }
  }
  hn::StoreU(hn::Load(d, planes + used * lanes), d, votes);
}

// Up to 15 senders: the planes stay in registers.
template <class D>
HWY_INLINE void majority_of_few(D d, const uint32_t* HWY_RESTRICT words, int64_t senders, int64_t stride,
                                uint32_t* HWY_RESTRICT votes) {
  const int64_t begin = 16 - (senders + 1) / 2;
  const auto plane = [&](int p) HWY_ATTR { return hn::Set(d, begin >> p & 1 ? ~uint32_t{0} : 0); };
  auto p0 = plane(0), p1 = plane(1), p2 = plane(2), p3 = plane(3), p4 = plane(4);
  for (int64_t s = 0; s < senders; ++s) {
    const auto c0 = hn::LoadU(d, words + s * stride), c1 = hn::And(p0, c0), c2 = hn::And(p1, c1);
    const auto c3 = hn::And(p2, c2), c4 = hn::And(p3, c3);
    p0 = hn::Xor(p0, c0), p1 = hn::Xor(p1, c1), p2 = hn::Xor(p2, c2), p3 = hn::Xor(p3, c3), p4 = hn::Xor(p4, c4);
  }
  hn::StoreU(p4, d, votes);
}

void majority_words(const uint32_t* words, int64_t senders, int64_t stride, uint32_t* votes, int64_t count) {
  const hn::CappedTag<uint32_t, 16> wide;
  const hn::CappedTag<uint32_t, 1> single;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t w = 0;
  if (senders <= 15)
    for (; w + lanes <= count; w += lanes) majority_of_few(wide, words + w, senders, stride, votes + w);
  for (; w + lanes <= count; w += lanes) majority_block(wide, words + w, senders, stride, votes + w);
  for (; w < count; ++w) majority_block(single, words + w, senders, stride, votes + w);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "engine/parallel.h"

namespace godwit {
namespace {

HWY_EXPORT(pack_words);
HWY_EXPORT(unpack_words);
HWY_EXPORT(sum_words);
HWY_EXPORT(majority_words);

constexpr int64_t kGrain = 1 << 12;  // words worth a thread
constexpr int64_t kAlign = 16;       // words of a cache line

}  // namespace

void pack_signs(Cpu, const float* x, uint32_t* words, int64_t n) {
  parallel_for(
      n / 32, kGrain,
      [=](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(pack_words)
                                        (x + 32 * begin, words + begin, end - begin); },
      kAlign);
  if (n % 32 == 0) return;
  uint32_t last = 0;
  for (int64_t j = n / 32 * 32; j < n; ++j) last |= static_cast<uint32_t>(x[j] >= 0) << (j % 32);
  words[n / 32] = last;
}

void unpack_signs(Cpu, const uint32_t* words, float* x, int64_t n) {
  parallel_for(
      n / 32, kGrain,
      [=](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(unpack_words)(words + begin, x + 32 * begin, end - begin);
      },
      kAlign);
  for (int64_t j = n / 32 * 32; j < n; ++j) x[j] = (words[n / 32] >> (j % 32) & 1) ? 1.0f : -1.0f;
}

void sum_signs(Cpu, const uint32_t* words, int64_t senders, int16_t* sum, int64_t n) {
  check(senders >= 1 && senders <= 32767, "sum_signs: ", senders, " senders; 1 to 32767 fit its 16-bit sums");
  const int64_t stride = sign_words(n);
  auto* out = reinterpret_cast<uint16_t*>(sum);
  parallel_for(
      n / 32, kGrain,
      [=](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(sum_words)(words + begin, senders, stride, out + 32 * begin, end - begin);
      },
      kAlign);
  if (n % 32 == 0) return;
  uint16_t last[32];
  HWY_DYNAMIC_DISPATCH(sum_words)(words + n / 32, senders, stride, last, 1);
  std::copy_n(last, n % 32, out + n / 32 * 32);
}

void majority_signs(Cpu, const uint32_t* words, int64_t senders, uint32_t* votes, int64_t n) {
  check(senders >= 1 && senders <= 32767, "majority_signs: ", senders, " senders; 1 to 32767 are counted");
  const int64_t stride = sign_words(n);
  parallel_for(
      stride, kGrain,
      [=](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(majority_words)(words + begin, senders, stride, votes + begin, end - begin);
      },
      kAlign);
  if (n % 32 != 0) votes[n / 32] &= (uint32_t{1} << (n % 32)) - 1;
}

}  // namespace godwit
#endif  // HWY_ONCE
