#include "optim/birder_kernels.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "comm/wire/sign_bits.h"
#include "engine/parallel.h"
#include "engine/random_words.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/birder_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef GODWIT_OPTIM_BIRDER_ARGS
#define GODWIT_OPTIM_BIRDER_ARGS
namespace godwit::birder {
struct WorkerArgs {
  const float* g;
  Worker state;
  uint32_t* words;
  WorkerSettings settings;
  Draw draw;
};
struct ServerArgs {
  const uint32_t* words;
  int senders;
  int64_t words_per_sender;
  float* e;
  uint32_t* out;
  Draw draw;
};
}  // namespace godwit::birder
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::birder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "a word's bytes hold its bits in order");

constexpr int64_t kChunk = 1024;  // values whose random words are made at a time, in the first-level cache

// A vector of at most 16 values, so that vectors tile the 32 of a word; and the single value of a range's last word.
using Many = hn::CappedTag<float, 16>;
using One = hn::CappedTag<float, 1>;

template <class D>
HWY_INLINE uint32_t bits_of(D d, hn::Mask<D> mask) {
  uint64_t bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return static_cast<uint32_t>(bits);
}

template <class D>
HWY_INLINE hn::Mask<D> mask_of(D d, uint32_t bits) {
  const uint64_t word = bits;
  return hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&word));
}

// u = Q(z) as a mask of the values that are +1.
template <class D>
HWY_INLINE hn::Mask<D> quantize(D d, hn::Vec<D> z, Quantizer quantizer, const uint32_t* random) {
  if (quantizer == Quantizer::sign) return hn::Ge(z, hn::Zero(d));
  const hn::Rebind<uint32_t, D> whole;
  const hn::Rebind<int32_t, D> integer;
  const auto one = hn::Set(d, 1.0f);
  const auto p = hn::Min(hn::Max(hn::Mul(hn::Add(z, one), hn::Set(d, 0.5f)), hn::Zero(d)), one);
  const auto top = hn::BitCast(integer, hn::ShiftRight<8>(hn::LoadU(whole, random)));
  return hn::Lt(hn::Mul(hn::ConvertTo(d, top), hn::Set(d, 0x1p-24f)), p);
}

template <class D>
HWY_INLINE hn::Vec<D> plus_minus_one(D d, hn::Mask<D> plus) {
  return hn::IfThenElse(plus, hn::Set(d, 1.0f), hn::Set(d, -1.0f));
}

// Algorithm 1, lines 5–9, for the lanes from value i on; `largest` collects the bits of |g|, to find what is not
// finite.
template <class D>
HWY_INLINE uint32_t worker_lanes(D d, const WorkerArgs& a, int64_t i, const uint32_t* random,
                                 hn::Vec<hn::Rebind<int32_t, D>>& largest) {
  const auto beta = hn::Set(d, a.settings.beta), o = hn::Set(d, a.settings.o);
  const auto g = hn::LoadU(d, a.g + i), size = hn::Abs(g);
  largest = hn::Max(largest, hn::BitCast(hn::Rebind<int32_t, D>(), size));

  const auto m = hn::Add(hn::Mul(beta, hn::LoadU(d, a.state.m + i)), hn::Mul(o, g));
  hn::StoreU(m, d, a.state.m + i);
  const float* average = a.state.b_hat ? a.state.b_hat : a.state.b;
  auto b = hn::Add(hn::Mul(beta, hn::LoadU(d, average + i)), hn::Mul(o, size));
  if (a.state.b_hat) {
    hn::StoreU(b, d, a.state.b_hat + i);
    if (a.settings.b_grows) b = hn::Max(hn::LoadU(d, a.state.b + i), b);
  }
  hn::StoreU(b, d, a.state.b + i);

  const auto ratio = hn::Div(m, hn::Add(b, hn::Set(d, a.settings.eps)));
  const auto z = a.state.e ? hn::Add(ratio, hn::LoadU(d, a.state.e + i)) : ratio;
  const auto plus = quantize(d, z, a.draw.quantizer, random);
  if (a.state.e) hn::StoreU(hn::Sub(z, plus_minus_one(d, plus)), d, a.state.e + i);
  return bits_of(d, plus);
}

// Lines 12–13 for the lanes from value i on; sum: Σu of the senders for these values.
template <class D>
HWY_INLINE uint32_t server_lanes(D d, const ServerArgs& a, int64_t i, const int16_t* sum, const uint32_t* random) {
  const hn::Rebind<int32_t, D> wide;
  const auto total = hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(hn::Rebind<int16_t, D>(), sum)));
  const auto mean = hn::Div(total, hn::Set(d, static_cast<float>(a.senders)));
  const auto z = a.e ? hn::Add(mean, hn::LoadU(d, a.e + i)) : mean;
  const auto plus = quantize(d, z, a.draw.quantizer, random);
  if (a.e) hn::StoreU(hn::Sub(z, plus_minus_one(d, plus)), d, a.e + i);
  return bits_of(d, plus);
}

// Fills words[begin/32, …) with the bits that many(i, random) and one(i, random) return for the lanes from value i on,
// after prepare(chunk, stop) for the values [chunk, stop); begin is a multiple of 32, as is end unless the values end
// there.
template <class Prepare, class ManyLanes, class OneLane>
HWY_INLINE void for_words(const Draw& draw, uint32_t* words, int64_t begin, int64_t end, const Prepare& prepare,
                          const ManyLanes& many, const OneLane& one) {
  alignas(64) uint32_t buffer[kChunk + kRandomSlack];
  const Draws draws{draw.seed, draw.step, static_cast<uint32_t>(draw.purpose), draw.sender};
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Many()));
  for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
    const int64_t stop = std::min(end, chunk + kChunk);
    prepare(chunk, stop);
    const uint32_t* random = buffer;
    if (draw.quantizer == Quantizer::random) random = random_words(draws, draw.begin + chunk, stop - chunk, buffer);
    int64_t i = chunk;
    for (; i + 32 <= stop; i += 32, random += 32) {
      uint32_t word = 0;
      for (int64_t k = 0; k < 32; k += lanes) word |= many(i + k, random + k) << k;
      words[i / 32] = word;
    }
    if (i == stop) continue;
    uint32_t word = 0;
    for (int64_t k = 0; i + k < stop; ++k) word |= one(i + k, random + k) << k;
    words[i / 32] = word;
  }
}

bool worker_range(const WorkerArgs& a, int64_t begin, int64_t end) {
  const Many many;
  const One one;
  const hn::Rebind<int32_t, Many> integers;
  const hn::Rebind<int32_t, One> integer;
  auto largest = hn::Zero(integers);
  auto largest_of_rest = hn::Zero(integer);
  for_words(
      a.draw, a.words, begin, end, [](int64_t, int64_t) {},
      [&](int64_t i, const uint32_t* random) HWY_ATTR { return worker_lanes(many, a, i, random, largest); },
      [&](int64_t i, const uint32_t* random) HWY_ATTR { return worker_lanes(one, a, i, random, largest_of_rest); });
  constexpr int32_t kInfinity = 0x7F800000;  // the bits of ∞; those of a NaN without its sign are larger
  return hn::AllTrue(integers, hn::Lt(largest, hn::Set(integers, kInfinity))) &&
         hn::GetLane(largest_of_rest) < kInfinity;
}

void server_range(const ServerArgs& a, int64_t begin, int64_t end) {
  constexpr int64_t kChunkWords = kChunk / 32;
  std::vector<uint32_t> words(static_cast<size_t>(kChunkWords * a.senders));  // of one chunk, sender by sender
  int16_t sums[kChunk];
  const auto add_up = [&](int64_t chunk, int64_t stop) {
    const int64_t count = sign_words(stop - chunk);
    for (int64_t s = 0; s < a.senders; ++s) {
      std::copy_n(a.words + s * a.words_per_sender + chunk / 32, count, words.data() + s * count);
    }
    sum_signs(Cpu{}, words.data(), a.senders, sums, stop - chunk);
  };
  for_words(
      a.draw, a.out, begin, end, add_up,
      [&](int64_t i, const uint32_t* random)
          HWY_ATTR { return server_lanes(Many(), a, i, sums + (i - begin) % kChunk, random); },
      [&](int64_t i, const uint32_t* random)
          HWY_ATTR { return server_lanes(One(), a, i, sums + (i - begin) % kChunk, random); });
}

// x ← keep·x − lr·u for the lanes from value i on.
template <class D>
HWY_INLINE void update_lanes(D d, float* x, const uint32_t* words, int64_t i, float keep, float lr) {
  const auto plus = mask_of(d, words[i / 32] >> (i % 32));
  const auto change = hn::IfThenElse(plus, hn::Set(d, lr), hn::Set(d, -lr));
  hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, keep), hn::LoadU(d, x + i)), change), d, x + i);
}

void update_range(float* x, const uint32_t* words, int64_t begin, int64_t end, float keep, float lr) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Many()));
  int64_t i = begin;
  for (; i < end && i % lanes != 0; ++i) update_lanes(One(), x, words, i, keep, lr);
  for (; i + lanes <= end; i += lanes) update_lanes(Many(), x, words, i, keep, lr);
  for (; i < end; ++i) update_lanes(One(), x, words, i, keep, lr);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::birder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::birder {

HWY_EXPORT(worker_range);
HWY_EXPORT(server_range);
HWY_EXPORT(update_range);

constexpr int64_t kGrain = 1 << 15;

bool worker_step(const float* g, const Worker& state, uint32_t* words, int64_t count, int64_t padded,
                 const WorkerSettings& settings, const Draw& draw) {
  std::atomic<bool> finite = true;
  const WorkerArgs args{g, state, words, settings, draw};
  parallel_for(
      count, kGrain,
      [&](int64_t begin, int64_t end) {
        if (!HWY_DYNAMIC_DISPATCH(worker_range)(args, begin, end)) finite = false;
      },
      32);
  std::fill(words + (count + 31) / 32, words + padded / 32, 0);
  return finite;
}

void server_step(const uint32_t* words, int senders, float* e, uint32_t* out, int64_t count, int64_t padded,
                 const Draw& draw) {
  const ServerArgs args{words, senders, padded / 32, e, out, draw};
  parallel_for(
      count, kGrain,
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(server_range)
        (args, begin, end);
      },
      32);
  std::fill(out + (count + 31) / 32, out + padded / 32, 0);
}

void update(float* x, const uint32_t* words, int64_t begin, int64_t end, float keep, float lr) {
  HWY_DYNAMIC_DISPATCH(update_range)(x, words, begin, end, keep, lr);
}

}  // namespace godwit::birder
#endif
