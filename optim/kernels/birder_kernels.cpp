#include "optim/kernels/birder_kernels.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "comm/compress/wire/sign_bits.h"
#include "engine/parallel.h"
#include "engine/random_words.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/kernels/birder_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef GODWIT_OPTIM_BIRDER_ARGS
#define GODWIT_OPTIM_BIRDER_ARGS
namespace godwit::birder {
template <class Moment, class Error>
struct WorkerArgs {
  const float* g;
  WorkerState<Moment, Error> state;
  uint32_t* words;
  WorkerSettings settings;
  QuantizerRng rng;
};
template <class Error>
struct ServerArgs {
  const uint32_t* words;
  int senders;
  int64_t words_per_sender;
  Error* e;
  const uint32_t* active;
  uint32_t* out;
  QuantizerRng rng;
};
struct UpdateArgs {
  float* x;
  const uint32_t *words, *active;
  float keep, lr;
};
}  // namespace godwit::birder
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit::birder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "a word's bytes hold its bits in order");

constexpr float kErrorStep = 1.0f / 64;  // unit of 8-bit errors
constexpr int64_t kChunk = 1024;         // values whose random words are generated at a time; they fit the L1 cache

// Many: a vector of at most 16 values, so that whole vectors fill a 32-bit word. One: a single value, for the end of a
// range.
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

// The random words of the values.
template <class D>
using Random = hn::Vec<hn::Rebind<uint32_t, D>>;

// u = Q(z), as a mask of the values that are +1. U = k/2²⁴ with integer k: U < clamp((z + 1)/2, 0, 1) is the same as
// k < (z + 1)·2²³. The multiplication is exact; clamping would change nothing, because k is in [0, 2²⁴).
template <class D>
HWY_INLINE hn::Mask<D> quantize(D d, hn::Vec<D> z, Quantizer quantizer, Random<D> random) {
  if (quantizer == Quantizer::sign) return hn::Ge(z, hn::Zero(d));
  const hn::Rebind<int32_t, D> integer;
  const auto k = hn::ConvertTo(d, hn::BitCast(integer, hn::ShiftRight<8>(random)));
  return hn::Lt(k, hn::Mul(hn::Add(z, hn::Set(d, 1.0f)), hn::Set(d, 0x1p23f)));
}

template <class D>
HWY_INLINE hn::Vec<D> plus_minus_one(D d, hn::Mask<D> plus) {
  return hn::IfThenElse(plus, hn::Set(d, 1.0f), hn::Set(d, -1.0f));
}

// load() and store() convert state to and from float32. The low 8 bits of the random words round.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* from) {
  const hn::Rebind<uint16_t, D> half;
  const hn::Rebind<uint32_t, D> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const int8_t* from) {
  const hn::Rebind<int32_t, D> integer;
  const auto code = hn::PromoteTo(integer, hn::LoadU(hn::Rebind<int8_t, D>(), from));
  return hn::Mul(hn::ConvertTo(d, code), hn::Set(d, kErrorStep));
}

template <class D>
HWY_INLINE Random<D> low_byte(D, Random<D> random) {
  return hn::And(random, hn::Set(hn::Rebind<uint32_t, D>(), 0xFFu));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> x, float* to, Random<D>) {
  hn::StoreU(x, d, to);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> x, bf16* to, Random<D> random) {
  const hn::Rebind<uint32_t, D> whole;
  const hn::Rebind<uint16_t, D> half;
  const auto bits = hn::BitCast(whole, x), sign = hn::And(bits, hn::Set(whole, 0x80000000u));
  const auto extra = hn::Add(hn::ShiftLeft<8>(low_byte(d, random)), hn::Set(whole, 128u));
  const auto size = hn::Min(hn::Add(hn::Xor(bits, sign), extra), hn::Set(whole, 0x7F7FFFFFu));
  const auto top = hn::ShiftRight<16>(hn::Or(size, sign));
  hn::StoreU(hn::TruncateTo(half, top), half, reinterpret_cast<uint16_t*>(to));
}

// The products are exact, so fusing them with additions does not change the result. Saturates.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> x, int8_t* to, Random<D> random) {
  const hn::Rebind<uint32_t, D> whole;
  const hn::Rebind<int32_t, D> integer;
  const hn::Rebind<uint8_t, D> byte;
  const auto k = hn::ConvertTo(d, hn::BitCast(integer, low_byte(d, random)));
  const auto part = hn::MulAdd(k, hn::Set(d, 1.0f / 256), hn::Set(d, 0.5f / 256));
  const auto code = hn::MulAdd(x, hn::Set(d, 1 / kErrorStep), part);
  const auto within = hn::Floor(hn::Min(hn::Max(code, hn::Set(d, -128.0f)), hn::Set(d, 127.0f)));
  const auto shifted = hn::Add(within, hn::Set(d, 12582912.0f));  // 1.5 · 2²³: the integer is in the lowest byte
  hn::StoreU(hn::TruncateTo(byte, hn::BitCast(whole, shifted)), byte, reinterpret_cast<uint8_t*>(to));
}

// Algorithm 1, lines 5–9, for the lanes from value i on. Keeps the largest bits of |g| in `largest`, to detect
// non-finite gradients.
template <class D, class Moment, class Error>
HWY_INLINE uint32_t worker_lanes(D d, const WorkerArgs<Moment, Error>& a, int64_t i, const uint32_t* words,
                                 hn::Vec<hn::Rebind<int32_t, D>>& largest) {
  const auto random = hn::LoadU(hn::Rebind<uint32_t, D>(), words);
  const auto beta = hn::Set(d, a.settings.beta), o = hn::Set(d, a.settings.o);
  const auto g = hn::LoadU(d, a.g + i), size = hn::Abs(g);
  largest = hn::Max(largest, hn::BitCast(hn::Rebind<int32_t, D>(), size));

  const auto m = hn::Add(hn::Mul(beta, load(d, a.state.m + i)), hn::Mul(o, g));
  store(d, m, a.state.m + i, random);
  const Moment* average = a.state.b_hat ? a.state.b_hat : a.state.b;
  auto b = hn::Add(hn::Mul(beta, load(d, average + i)), hn::Mul(o, size));
  if (a.state.b_hat) {
    store(d, b, a.state.b_hat + i, random);
    if (a.settings.b_grows) b = hn::Max(load(d, a.state.b + i), b);
  }
  store(d, b, a.state.b + i, random);

  auto ratio = hn::Div(m, hn::Add(b, hn::Set(d, a.settings.eps)));
  if (a.settings.nodes > 1) {
    const auto n = static_cast<float>(a.settings.nodes);
    const auto length = hn::Sqrt(hn::Add(hn::Mul(hn::Mul(hn::Set(d, n - 1), ratio), ratio), hn::Set(d, 1.0f)));
    ratio = hn::Div(hn::Mul(ratio, hn::Set(d, std::sqrt(n))), length);
  }
  const auto z = a.state.e ? hn::Add(ratio, load(d, a.state.e + i)) : ratio;
  const auto plus = quantize(d, z, a.rng.quantizer, random);
  if (!a.state.active) {
    if (a.state.e) store(d, hn::Sub(z, plus_minus_one(d, plus)), a.state.e + i, random);
    return bits_of(d, plus);
  }
  const uint32_t active_bits = a.state.active[i / 32] >> (i % 32);
  const auto active = mask_of(d, active_bits);
  if (a.state.e) store(d, hn::IfThenElse(active, hn::Sub(z, plus_minus_one(d, plus)), ratio), a.state.e + i, random);
  return (bits_of(d, plus) & active_bits) | (bits_of(d, hn::Gt(b, hn::Zero(d))) & ~active_bits);
}

// Algorithm 1, lines 12–13, for the lanes from value i on; sum: Σu over the senders for these values.
template <class D, class Error>
HWY_INLINE uint32_t server_lanes(D d, const ServerArgs<Error>& a, int64_t i, const int16_t* sum,
                                 const uint32_t* words) {
  const auto random = hn::LoadU(hn::Rebind<uint32_t, D>(), words);
  const hn::Rebind<int32_t, D> wide;
  const auto total = hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(hn::Rebind<int16_t, D>(), sum)));
  const auto senders = hn::Set(d, static_cast<float>(a.senders));
  const auto mean = hn::Div(total, senders);
  const auto old = a.e ? load(d, a.e + i) : hn::Zero(d);
  const auto z = a.e ? hn::Add(mean, old) : mean;
  const auto plus = quantize(d, z, a.rng.quantizer, random);
  if (!a.active) {
    if (a.e) store(d, hn::Sub(z, plus_minus_one(d, plus)), a.e + i, random);
    return bits_of(d, plus);
  }
  const uint32_t active_bits = a.active[i / 32] >> (i % 32);
  const auto active = mask_of(d, active_bits);
  if (a.e) store(d, hn::IfThenElse(active, hn::Sub(z, plus_minus_one(d, plus)), old), a.e + i, random);
  const uint32_t any = bits_of(d, hn::Gt(total, hn::Neg(senders)));
  return (bits_of(d, plus) & active_bits) | (any & ~active_bits);
}

// Prefetches values [begin, end), which are needed after the random words have been generated.
template <class T>
HWY_INLINE void prefetch(const T* from, int64_t begin, int64_t end) {
  if (!from) return;
  for (const char* at = reinterpret_cast<const char*>(from + begin); at < reinterpret_cast<const char*>(from + end);
       at += 64)
    __builtin_prefetch(at);
}

// Fills words from bit `begin` to bit `end` with the bits that many(i, random) and one(i, random) return for the lanes
// from value i on. Calls prepare(chunk, stop) before the values [chunk, stop). `rounds`: random words are needed even
// without the random quantizer. begin and end are multiples of 32, except that end may be the number of values.
template <class Prepare, class ManyLanes, class OneLane>
HWY_INLINE void for_words(const QuantizerRng& rng, bool rounds, uint32_t* words, int64_t begin, int64_t end,
                          const Prepare& prepare, const ManyLanes& many, const OneLane& one) {
  alignas(64) uint32_t buffer[kChunk + kRandomSlack];
  const RngKey key{rng.seed, rng.step, static_cast<uint32_t>(rng.purpose), rng.sender};
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Many()));
  for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
    const int64_t stop = std::min(end, chunk + kChunk);
    prepare(chunk, stop);
    const uint32_t* random = buffer;
    if (rounds || rng.quantizer == Quantizer::random)
      random = random_words(key, rng.begin + chunk, stop - chunk, buffer);
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

// `a` is passed by value, here and below: the compiler must assume that stores to the state change the fields behind a
// reference.
template <class Moment, class Error>
HWY_INLINE bool worker_range(WorkerArgs<Moment, Error> a, int64_t begin, int64_t end) {
  constexpr bool kRounds = sizeof(Moment) < 4 || sizeof(Error) < 4;
  const Many many;
  const One one;
  const hn::Rebind<int32_t, Many> integers;
  const hn::Rebind<int32_t, One> integer;
  auto largest = hn::Zero(integers);
  auto largest_of_rest = hn::Zero(integer);
  for_words(
      a.rng, kRounds, a.words, begin, end, [](int64_t, int64_t) {},
      [&](int64_t i, const uint32_t* random) HWY_ATTR { return worker_lanes(many, a, i, random, largest); },
      [&](int64_t i, const uint32_t* random) HWY_ATTR { return worker_lanes(one, a, i, random, largest_of_rest); });
  constexpr int32_t kInfinity = 0x7F800000;  // bits of ∞; those of |NaN| are larger
  return hn::AllTrue(integers, hn::Lt(largest, hn::Set(integers, kInfinity))) &&
         hn::GetLane(largest_of_rest) < kInfinity;
}

bool worker_f32(const WorkerArgs<float, float>& a, int64_t begin, int64_t end) { return worker_range(a, begin, end); }
bool worker_f32_i8(const WorkerArgs<float, int8_t>& a, int64_t begin, int64_t end) {
  return worker_range(a, begin, end);
}
bool worker_bf16(const WorkerArgs<bf16, float>& a, int64_t begin, int64_t end) { return worker_range(a, begin, end); }
bool worker_bf16_i8(const WorkerArgs<bf16, int8_t>& a, int64_t begin, int64_t end) {
  return worker_range(a, begin, end);
}

template <class Error>
HWY_INLINE void server_range(ServerArgs<Error> a, int64_t begin, int64_t end) {
  int16_t sums[kChunk];
  const auto add_up = [&](int64_t chunk, int64_t stop) {
    prefetch(a.e, chunk, stop);
    for (int64_t s = 0; s < a.senders; ++s)
      prefetch(a.words + s * a.words_per_sender, stop / 32, std::min(end, stop + kChunk) / 32);
    sum_signs(Cpu{}, a.words + chunk / 32, a.senders, a.words_per_sender, sums, stop - chunk);
  };
  for_words(
      a.rng, sizeof(Error) < 4, a.out, begin, end, add_up,
      [&](int64_t i, const uint32_t* random)
          HWY_ATTR { return server_lanes(Many(), a, i, sums + ((i - begin) & (kChunk - 1)), random); },
      [&](int64_t i, const uint32_t* random)
          HWY_ATTR { return server_lanes(One(), a, i, sums + ((i - begin) & (kChunk - 1)), random); });
}

void server_f32(const ServerArgs<float>& a, int64_t begin, int64_t end) { server_range(a, begin, end); }
void server_i8(const ServerArgs<int8_t>& a, int64_t begin, int64_t end) { server_range(a, begin, end); }

// x ← keep·x − lr·u for the lanes from value i on.
template <class D>
HWY_INLINE void update_lanes(D d, const UpdateArgs& a, int64_t i) {
  const auto plus = mask_of(d, a.words[i / 32] >> (i % 32));
  const auto change = hn::IfThenElse(plus, hn::Set(d, a.lr), hn::Set(d, -a.lr));
  const auto old = hn::LoadU(d, a.x + i);
  const auto x = hn::Sub(hn::Mul(hn::Set(d, a.keep), old), change);
  hn::StoreU(a.active ? hn::IfThenElse(mask_of(d, a.active[i / 32] >> (i % 32)), x, old) : x, d, a.x + i);
}

void update_range(const UpdateArgs& a, int64_t begin, int64_t end) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Many()));
  int64_t i = begin;
  for (; i < end && i % lanes != 0; ++i) update_lanes(One(), a, i);
  for (; i + lanes <= end; i += lanes) update_lanes(Many(), a, i);
  for (; i < end; ++i) update_lanes(One(), a, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::birder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::birder {

HWY_EXPORT(worker_f32);
HWY_EXPORT(worker_f32_i8);
HWY_EXPORT(worker_bf16);
HWY_EXPORT(worker_bf16_i8);
HWY_EXPORT(server_f32);
HWY_EXPORT(server_i8);
HWY_EXPORT(update_range);

namespace {

constexpr int64_t kGrain = 1 << 15;

bool worker(const WorkerArgs<float, float>& a, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(worker_f32)(a, begin, end);
}
bool worker(const WorkerArgs<float, int8_t>& a, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(worker_f32_i8)(a, begin, end);
}
bool worker(const WorkerArgs<bf16, float>& a, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(worker_bf16)(a, begin, end);
}
bool worker(const WorkerArgs<bf16, int8_t>& a, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(worker_bf16_i8)(a, begin, end);
}
void server(const ServerArgs<float>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(server_f32)(a, begin, end); }
void server(const ServerArgs<int8_t>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(server_i8)(a, begin, end); }

}  // namespace

template <class Moment, class Error>
bool worker_step(const float* g, const WorkerState<Moment, Error>& state, uint32_t* words, int64_t count,
                 int64_t padded, const WorkerSettings& settings, const QuantizerRng& rng) {
  std::atomic<bool> finite = true;
  const WorkerArgs<Moment, Error> args{g, state, words, settings, rng};
  parallel_for(
      count, kGrain,
      [&](int64_t begin, int64_t end) {
        if (!worker(args, begin, end)) finite = false;
      },
      32);
  std::fill(words + (count + 31) / 32, words + padded / 32, 0);
  return finite;
}

template <class Error>
void server_step(const uint32_t* words, int senders, Error* e, const uint32_t* active, uint32_t* out, int64_t count,
                 int64_t padded, const QuantizerRng& rng) {
  const ServerArgs<Error> args{words, senders, padded / 32, e, active, out, rng};
  parallel_for(
      count, kGrain, [&](int64_t begin, int64_t end) { server(args, begin, end); }, 32);
  std::fill(out + (count + 31) / 32, out + padded / 32, 0);
}

#define GODWIT_WORKER(Moment, Error)                                                                      \
  template bool worker_step(const float*, const WorkerState<Moment, Error>&, uint32_t*, int64_t, int64_t, \
                            const WorkerSettings&, const QuantizerRng&);
GODWIT_WORKER(float, float)
GODWIT_WORKER(float, int8_t)
GODWIT_WORKER(bf16, float)
GODWIT_WORKER(bf16, int8_t)
#undef GODWIT_WORKER
template void server_step(const uint32_t*, int, float*, const uint32_t*, uint32_t*, int64_t, int64_t,
                          const QuantizerRng&);
template void server_step(const uint32_t*, int, int8_t*, const uint32_t*, uint32_t*, int64_t, int64_t,
                          const QuantizerRng&);

void update(float* x, const uint32_t* words, const uint32_t* active, int64_t begin, int64_t end, float keep, float lr) {
  const auto range = [&](int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(update_range)(UpdateArgs{x, words, active, keep, lr}, begin + first, begin + last);
  };
  parallel_for(end - begin, kGrain, range, 32);
}

void update(Cpu, float* x, const uint32_t* words, const uint32_t* active, int64_t begin, int64_t end,
            const std::vector<int64_t>& bounds, float first, float second, float lr) {
  for (size_t i = 0; i <= bounds.size(); ++i)
    update(x, words, active, i == 0 ? begin : bounds[i - 1], i == bounds.size() ? end : bounds[i],
           i % 2 == 0 ? first : second, lr);
}

}  // namespace godwit::birder
#endif
