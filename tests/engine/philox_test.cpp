#include "engine/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "engine/check.h"

namespace godwit {
namespace philox_test {

using Words = std::array<uint32_t, 4>;

// Known answers of philox4x32-10 published with Random123 (kat_vectors).
TEST(Philox, MatchesThePublishedKnownAnswers) {
  static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Values from an independent implementation in Python. Streams and words must never change: resumed runs and stored
// results depend on them.
TEST(Philox, KeepsItsNumbersForever) {
  const uint64_t seed = uint64_t{7} << 32 | 42;
  RandomStream stream(seed, Purpose::initialize, 5, 6);
  for (uint32_t expected : {0x8754fa04u, 0x816921e9u, 0x5eb49c9bu, 0xdbcaed71u, 0x8bf71522u, 0xb7ac9c0bu})
    EXPECT_EQ(stream.next(), expected);
  EXPECT_EQ(random_word(seed, 10, 3, Purpose::worker_sign, 2), 0x7398039fu);
}

TEST(Philox, WordsAreKeyedByElementStepPurposeAndSender) {
  std::set<uint32_t> words;
  for (int64_t element : {0, 1, 2, 3, 4, 1 << 20})
    for (uint32_t step : {0, 1, 9})
      for (Purpose purpose : {Purpose::worker_sign, Purpose::server_sign})
        for (uint32_t sender : {0, 1, 7}) words.insert(random_word(1, element, step, purpose, sender));
  EXPECT_EQ(words.size(), 6u * 3 * 2 * 3);
}

TEST(Philox, UnitIsBelowOne) {
  EXPECT_EQ(to_unit(0), 0.f);
  EXPECT_LT(to_unit(0xffffffff), 1.f);
}

TEST(RandomStream, DifferentKeysMakeDifferentStreams) {
  std::set<uint32_t> firsts;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
    for (Purpose purpose : {Purpose::shuffle, Purpose::augment})
      for (uint32_t a : {0, 1})
        for (uint32_t b : {0, 1}) firsts.insert(RandomStream(seed, purpose, a, b).next());
  EXPECT_EQ(firsts.size(), 24u);
}

TEST(RandomStream, BelowIsUniform) {
  for (uint32_t n : {1u, 2u, 3u, 7u, 10u}) {
    RandomStream random(4, Purpose::test, n);
    std::vector<int> counts(n);
    const int draws = 10000;
    for (int i = 0; i < draws; ++i) {
      const uint32_t x = random.below(n);
      ASSERT_LT(x, n);
      ++counts[x];
    }
    const double mean = static_cast<double>(draws) / n, sigma = std::sqrt(mean * (1 - 1.0 / n));
    for (int count : counts) EXPECT_NEAR(count, mean, 5 * sigma);
  }
}

TEST(RandomStream, BelowRefusesZero) {
  RandomStream random(1, Purpose::test);
  EXPECT_THROW(random.below(0), Error);
}

// For n = 3·2³⁰ the plain high half of word·n would return every third number twice as often as the others.
TEST(RandomStream, BelowIsUnbiasedForLargeBounds) {
  const uint32_t n = 3u << 30;
  RandomStream random(5, Purpose::test);
  int counts[3] = {};
  const int draws = 30000;
  for (int i = 0; i < draws; ++i) {
    const uint32_t x = random.below(n);
    ASSERT_LT(x, n);
    ++counts[x % 3];
  }
  for (int count : counts) EXPECT_NEAR(count, draws / 3.0, 5 * std::sqrt(draws * 2 / 9.0));
}

TEST(RandomStream, UniformAndNormalHaveTheExpectedMoments) {
  RandomStream random(6, Purpose::test);
  const int n = 100000;
  double uniform = 0, mean = 0, square = 0, cube = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const float u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u;
    const double x = random.normal();
    ASSERT_TRUE(std::isfinite(x));
    mean += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
  }
  const double sigma =
      1 / std::sqrt(n);  // of an average with unit variance; the moments' variances are 1/12, 1, 2, 15, 96
  EXPECT_NEAR(uniform / n, 0.5, 5 * sigma * std::sqrt(1 / 12.0));
  EXPECT_NEAR(mean / n, 0, 5 * sigma);
  EXPECT_NEAR(square / n, 1, 5 * sigma * std::sqrt(2.0));
  EXPECT_NEAR(cube / n, 0, 5 * sigma * std::sqrt(15.0));
  EXPECT_NEAR(fourth / n, 3, 5 * sigma * std::sqrt(96.0));
}

}  // namespace philox_test
}  // namespace godwit
