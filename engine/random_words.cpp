#include "engine/random_words.h"

#include "engine/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/random_words.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
const uint32_t* random_words_range(const Draws& draws, int64_t element, int64_t count, uint32_t* buffer) {
  for (int64_t k = 0; k < count; ++k)
    buffer[k] = random_word(draws.seed, element + k, draws.step, static_cast<Purpose>(draws.purpose), draws.sender);
  return buffer;
}
#else
// Written from a multiple of 4 on. The counters' four words live in 64-bit lanes, whose low halves the multiplication
// takes.
const uint32_t* random_words_range(const Draws& draws, int64_t element, int64_t count, uint32_t* buffer) {
  const hn::CappedTag<uint64_t, 8> d;
  const hn::Repartition<uint32_t, decltype(d)> halves;
  const auto product = [&](auto x, auto factor) HWY_ATTR { return hn::MulEven(hn::BitCast(halves, x), factor); };
  const auto packed = [&](auto low, auto high) HWY_ATTR {
    return hn::BitCast(d, hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<32>(high)), hn::BitCast(halves, low)));
  };
  const auto factor0 = hn::Set(halves, 0xD2511F53u), factor2 = hn::Set(halves, 0xCD9E8D57u);
  uint64_t keys0[10], keys1[10];
  for (uint32_t round = 0; round < 10; ++round) {
    keys0[round] = static_cast<uint32_t>(draws.seed) + 0x9E3779B9u * round;
    keys1[round] = static_cast<uint32_t>(draws.seed >> 32) + 0xBB67AE85u * round;
  }
  const int64_t skipped = element & 3, lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto step = hn::Set(d, uint64_t{draws.step}), purpose = hn::Set(d, uint64_t{draws.purpose});
  const auto sender = hn::Set(d, uint64_t{draws.sender}), next = hn::Set(d, static_cast<uint64_t>(lanes));
  const auto one_round = [&](auto& c0, auto& c1, auto& c2, auto& c3, int round) HWY_ATTR {
    const auto a = product(c0, factor0), b = product(c2, factor2);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), hn::Set(d, keys0[round]));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), hn::Set(d, keys1[round]));
    c1 = b;
    c3 = a;
  };
  auto counter = hn::Iota(d, static_cast<uint64_t>(element >> 2));
  // Two vectors of counters at a time: the rounds of one wait for each other.
  for (int64_t done = 0; done < skipped + count; done += 8 * lanes) {
    auto c0 = counter, c1 = step, c2 = purpose, c3 = sender;
    auto e0 = hn::Add(counter, next), e1 = step, e2 = purpose, e3 = sender;
    counter = hn::Add(e0, next);
    for (int round = 0; round < 10; ++round) {
      one_round(c0, c1, c2, c3, round);
      one_round(e0, e1, e2, e3, round);
    }
    auto* words = reinterpret_cast<uint64_t*>(buffer + done);
    hn::StoreInterleaved2(packed(c0, c1), packed(c2, c3), d, words);
    hn::StoreInterleaved2(packed(e0, e1), packed(e2, e3), d, words + 2 * lanes);
  }
  return buffer + skipped;
}
static_assert(kRandomSlack >= 8 * 8 + 4, "the last counters' words, and the skipped ones");
#endif

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(random_words_range);

const uint32_t* random_words(const Draws& draws, int64_t element, int64_t count, uint32_t* buffer) {
  return HWY_DYNAMIC_DISPATCH(random_words_range)(draws, element, count, buffer);
}

}  // namespace godwit
#endif
