#include "engine/random_words.h"

#include <array>
#include <type_traits>

#include "engine/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/random_words.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef GODWIT_ENGINE_PHILOX_KEYS
#define GODWIT_ENGINE_PHILOX_KEYS
namespace godwit {

// The other three counter words and the round keys, in memory, so that vectors are filled by broadcast loads.
struct Philox {
  explicit Philox(const RngKey& rng) : step(rng.step), purpose(rng.purpose), sender(rng.sender) {
    for (uint32_t round = 0; round < 10; ++round) {
      keys0[round] = static_cast<uint32_t>(rng.seed) + 0x9E3779B9u * round;
      keys1[round] = static_cast<uint32_t>(rng.seed >> 32) + 0xBB67AE85u * round;
    }
  }
  uint64_t step, purpose, sender;
  uint64_t keys0[10], keys1[10];
};

}  // namespace godwit
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
const uint32_t* random_words_range(const RngKey& rng, const Philox&, int64_t element, int64_t count, uint32_t* buffer,
                                   const char*) {
  for (int64_t k = 0; k < count; ++k)
    buffer[k] = random_word(rng.seed, element + k, rng.step, static_cast<Purpose>(rng.purpose), rng.sender);
  return buffer;
}
#else
using Counters = hn::CappedTag<uint64_t, 8>;
using Words = hn::Repartition<uint32_t, Counters>;

// Generates the words of kVectors vectors of counters. The rounds of one vector depend on each other; five independent
// vectors keep a core busy and fit in its registers. A counter's four words are the low halves of 64-bit lanes, which
// the multiplication reads. The upper halves are unused until after the last round.
template <int kVectors>
HWY_INLINE void fill(const Philox& philox, hn::Vec<Counters> counters, uint32_t* words, const char* ahead) {
  const Counters d;
  const Words halves;
  using V = hn::Vec<Counters>;
  const auto factor0 = hn::Set(halves, 0xD2511F53u), factor2 = hn::Set(halves, 0xCD9E8D57u);
  const auto product = [&](V x, auto factor) HWY_ATTR { return hn::MulEven(hn::BitCast(halves, x), factor); };
  const auto lanes = hn::Lanes(d);
  V c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    c0[j] = hn::Add(counters, hn::Set(d, j * lanes));
    c1[j] = hn::Set(d, philox.step), c2[j] = hn::Set(d, philox.purpose), c3[j] = hn::Set(d, philox.sender);
  }
  HWY_UNROLL(9)
  for (int round = 0; round < 9; ++round)
    for (int j = 0; j < kVectors; ++j) {
      const V a = product(c0[j], factor0), b = product(c2[j], factor2);
      c0[j] = hn::Xor3(hn::ShiftRight<32>(b), c1[j], hn::Set(d, philox.keys0[round]));
      c2[j] = hn::Xor3(hn::ShiftRight<32>(a), c3[j], hn::Set(d, philox.keys1[round]));
      c1[j] = b, c3[j] = a;
    }
  // Two words of the result: a product with swapped halves, whose low word is combined with the old word and the key.
  const auto low = hn::Set(d, 0xFFFFFFFFu);
  const auto last = [&](V result, V old, uint64_t key) HWY_ATTR {
    return hn::Xor3(hn::BitCast(d, hn::Shuffle2301(hn::BitCast(halves, result))), hn::And(old, low), hn::Set(d, key));
  };
  constexpr size_t kLine = 64, kBytes = 4 * sizeof(uint32_t) * hn::MaxLanes(d);
  for (int j = 0; j < kVectors; ++j, words += 4 * lanes) {
    if (ahead)
      for (size_t byte = 0; byte < kBytes; byte += kLine) hwy::Prefetch(ahead + static_cast<size_t>(j) * kBytes + byte);
    const V c01 = last(product(c2[j], factor2), c1[j], philox.keys0[9]);
    const V c23 = last(product(c0[j], factor0), c3[j], philox.keys1[9]);
    hn::StoreU(hn::BitCast(halves, hn::InterleaveLower(d, c01, c23)), halves, words);
    hn::StoreU(hn::BitCast(halves, hn::InterleaveUpper(d, c01, c23)), halves, words + 2 * lanes);
  }
}

// Generates words starting at the previous multiple of 4.
const uint32_t* random_words_range(const RngKey&, const Philox& philox, int64_t element, int64_t count,
                                   uint32_t* buffer, const char* ahead) {
  const Counters d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), skipped = element & 3, end = skipped + count;
  // Interleaving works within blocks of 128 bits. With this order of the counters, the words come out in sequence.
  constexpr size_t kLanes = hn::MaxLanes(Counters());
  HWY_ALIGN static constexpr auto kOrder = [] {
    std::array<uint64_t, kLanes> order{};
    for (size_t j = 0; j < kLanes; ++j) order[j] = j % 2 * (kLanes / 2) + j / 2;
    return order;
  }();
  auto counters = hn::Add(hn::Load(d, kOrder.data()), hn::Set(d, static_cast<uint64_t>(element >> 2)));
  int64_t done = 0;
  const auto draw = [&]<int kVectors>(std::integral_constant<int, kVectors>) HWY_ATTR {
    fill<kVectors>(philox, counters, buffer + done, ahead ? ahead + 4 * done : nullptr);
    counters = hn::Add(counters, hn::Set(d, static_cast<uint64_t>(kVectors * lanes)));
    done += kVectors * 4 * lanes;
  };
  while (done + 20 * lanes <= end) draw(std::integral_constant<int, 5>());
  while (done + 4 * lanes < end) draw(std::integral_constant<int, 2>());
  if (done < end) draw(std::integral_constant<int, 1>());
  return buffer + skipped;
}
static_assert(kRandomSlack >= 4 * 8 + 4, "room for unused words of the last counters and for skipped words");
#endif

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(random_words_range);

const uint32_t* random_words(const RngKey& rng, int64_t element, int64_t count, uint32_t* buffer, const void* ahead) {
  return HWY_DYNAMIC_DISPATCH(random_words_range)(rng, Philox(rng), element, count, buffer,
                                                  static_cast<const char*>(ahead));
}

}  // namespace godwit
#endif
