#include "comm/compress/wire/sign_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/wire/sign_bits.cpp"
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

constexpr int64_t kMaxPlanes = 15;  // for counts up to 32767

// Bits [first, first + lanes) from `bits`; must not cross a byte boundary unless they are whole bytes.
template <class D>
HWY_INLINE hn::Mask<D> load_mask(D d, const uint8_t* bits, size_t first) {
  if constexpr (hn::MaxLanes(D()) >= 8) return hn::LoadMaskBits(d, bits + first / 8);
  const uint8_t some[8] = {static_cast<uint8_t>(bits[first / 8] >> first % 8)};
  return hn::LoadMaskBits(d, some);
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
      hn::StoreU(hn::IfThenElse(load_mask(d, reinterpret_cast<const uint8_t*>(words + w), j), plus, minus), d, x + j);
}

// Bitwise a + b + c: returns the low bits of the sums and stores the high bits in `carry`.
template <class V>
HWY_INLINE V full_add(V a, V b, V c, V& carry) {
  const auto either = hn::Xor(a, b);
  carry = hn::OrAnd(hn::And(a, b), either, c);
  return hn::Xor(either, c);
}

// Counts the ones over all senders for blocks of Lanes(d) words. Each block has kMaxPlanes planes; plane p holds bit p
// of the block's counts. Adds eight senders at a time, because their sum has four bits. Adds them to all blocks before
// the next eight, so that the words of few senders compete for the cache.
template <class D>
HWY_INLINE void count_planes(D d, const uint32_t* HWY_RESTRICT words, int64_t senders, int64_t stride, int64_t blocks,
                             uint32_t* HWY_RESTRICT planes) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), used = std::bit_width(static_cast<uint64_t>(senders));
  for (int64_t s = 0; s < senders; s += 8, words += 8 * stride)
    for (int64_t block = 0; block < blocks; ++block) {
      uint32_t* plane = planes + block * kMaxPlanes * lanes;
      const auto word = [&](int64_t k) HWY_ATTR {
        return s + k < senders ? hn::LoadU(d, words + k * stride + block * lanes) : hn::Zero(d);
      };
      const auto so_far = [&](int64_t p) HWY_ATTR { return s > 0 ? hn::LoadU(d, plane + p * lanes) : hn::Zero(d); };
      auto a = hn::Zero(d), b = a, c = a, e = a, p0 = so_far(0), p1 = so_far(1), p2 = so_far(2);
      p0 = full_add(p0, word(0), word(1), a);
      p0 = full_add(p0, word(2), word(3), b);
      p1 = full_add(p1, a, b, c);
      p0 = full_add(p0, word(4), word(5), a);
      p0 = full_add(p0, word(6), word(7), b);
      p1 = full_add(p1, a, b, e);
      p2 = full_add(p2, c, e, a);
      hn::StoreU(p0, d, plane);
      hn::StoreU(p1, d, plane + lanes);
      hn::StoreU(p2, d, plane + 2 * lanes);
      for (int64_t p = 3; p < used; ++p) {
        const auto old = so_far(p);
        hn::StoreU(hn::Xor(old, a), d, plane + p * lanes);
        a = hn::And(old, a);
      }
    }
}

// Sums of a block of kLanes words from its counts; T holds them modulo 2^bits.
template <class T, size_t kLanes, class Sum>
HWY_INLINE void sum_block(const uint32_t* planes, int64_t senders, Sum* HWY_RESTRICT sum) {
  HWY_ALIGN T totals[32 * kLanes];
  const hn::CappedTag<T, kLanes == 1 ? 32 : 64> d;
  const int64_t used = std::bit_width(static_cast<uint64_t>(senders));
  for (size_t i = 0; i < 32 * kLanes; i += hn::Lanes(d)) {
    auto total = hn::Set(d, static_cast<T>(-senders));
    for (int64_t p = 0; p < used; ++p) {
      const auto one = load_mask(d, reinterpret_cast<const uint8_t*>(planes + p * static_cast<int64_t>(kLanes)), i);
      total = hn::IfThenElse(one, hn::Add(total, hn::Set(d, static_cast<T>(2u << p))), total);
    }
    hn::Store(total, d, totals + i);
  }
  for (size_t i = 0; i < 32 * kLanes; ++i) sum[i] = static_cast<std::make_signed_t<T>>(totals[i]);
}

// Sums whole blocks out of `count` words and returns the number of words done.
template <class T, class D, class Sum>
HWY_INLINE int64_t sum_blocks(D d, const uint32_t* words, int64_t senders, int64_t stride, Sum* sum, int64_t count) {
  constexpr int64_t kLanes = hn::MaxLanes(D()), kBlocks = 8;
  HWY_ALIGN uint32_t planes[kBlocks * kMaxPlanes * kLanes];
  int64_t w = 0;
  while (w + kLanes <= count) {
    const int64_t blocks = std::min(kBlocks, (count - w) / kLanes);
    count_planes(d, words + w, senders, stride, blocks, planes);
    for (int64_t block = 0; block < blocks; ++block, w += kLanes)
      sum_block<T, kLanes>(planes + block * kMaxPlanes * kLanes, senders, sum + 32 * w);
  }
  return w;
}

template <class T, class Sum>
HWY_INLINE void sum_words(const uint32_t* words, int64_t senders, int64_t stride, Sum* sum, int64_t count) {
  const int64_t w = sum_blocks<T>(hn::CappedTag<uint32_t, 16>(), words, senders, stride, sum, count);
  sum_blocks<T>(hn::CappedTag<uint32_t, 1>(), words + w, senders, stride, sum + 32 * w, count - w);
}

template <class Sum>
HWY_INLINE void sum_words(const uint32_t* words, int64_t senders, int64_t stride, Sum* sum, int64_t count) {
  if (senders <= 127) return sum_words<uint8_t>(words, senders, stride, sum, count);
  sum_words<uint16_t>(words, senders, stride, sum, count);
}

void sum_words_i16(const uint32_t* words, int64_t senders, int64_t stride, int16_t* sum, int64_t count) {
  sum_words(words, senders, stride, sum, count);
}
void sum_words_i32(const uint32_t* words, int64_t senders, int64_t stride, int32_t* sum, int64_t count) {
  sum_words(words, senders, stride, sum, count);
}

// The counts start at 2^used − half, where half is half of the senders, rounded up. A count therefore carries into
// plane `used` once `half` senders have a 1.
template <class D>
HWY_INLINE void majority_block(D d, const uint32_t* HWY_RESTRICT words, int64_t senders, int64_t stride,
                               uint32_t* HWY_RESTRICT votes) {
  const size_t lanes = hn::Lanes(d);
  const size_t used = std::min<size_t>(std::bit_width(static_cast<uint64_t>(senders)), size_t{kMaxPlanes});
  const uint64_t begin = (uint64_t{1} << used) - static_cast<uint64_t>((senders + 1) / 2);
  HWY_ALIGN uint32_t planes[(size_t{kMaxPlanes} + 1) * hn::MaxLanes(D())];
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

// For up to 15 senders: the planes stay in registers.
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
HWY_EXPORT(sum_words_i16);
HWY_EXPORT(sum_words_i32);
HWY_EXPORT(majority_words);

constexpr int64_t kGrain = 1 << 12;  // minimum number of words per thread
constexpr int64_t kAlign = 16;       // words per cache line

template <class Sum, class SumWords>
void sum_all(const uint32_t* words, int64_t senders, int64_t stride, Sum* sum, int64_t n, const SumWords& sum_words) {
  check(senders >= 1 && senders <= 32767, "sum_signs: ", senders, " senders; 1 to 32767 fit its 16-bit sums");
  parallel_for(
      n / 32, kGrain,
      [&](int64_t begin, int64_t end) { sum_words(words + begin, senders, stride, sum + 32 * begin, end - begin); },
      kAlign);
  if (n % 32 == 0) return;
  Sum last[32];
  sum_words(words + n / 32, senders, stride, last, 1);
  std::copy_n(last, n % 32, sum + n / 32 * 32);
}

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

void sum_signs(Cpu, const uint32_t* words, int64_t senders, int64_t stride, int16_t* sum, int64_t n) {
  sum_all(words, senders, stride, sum, n, HWY_DYNAMIC_DISPATCH(sum_words_i16));
}

void sum_signs(Cpu, const uint32_t* words, int64_t senders, int64_t stride, int32_t* sum, int64_t n) {
  sum_all(words, senders, stride, sum, n, HWY_DYNAMIC_DISPATCH(sum_words_i32));
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
