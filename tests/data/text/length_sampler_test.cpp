#include "data/text/length_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "engine/philox.h"
#include "tests/support.h"

namespace godwit::data {
namespace length_sampler_test {

using testing::HasSubstr;

// Lengths between 10 and 400, like texts.
int64_t length_of(int64_t sample) { return 10 + (sample * 7919 % 20) * (sample * 104729 % 20); }

TEST(LengthSampler, RanksGetDisjointSamplesAndEquallyManyBatches) {
  for (const int64_t n : {1, 7, 64, 101, 1000})
    for (const int world : {1, 2, 3, 8})
      for (const int64_t batch : {1, 3, 8})
        for (const int64_t window : {1, 3, 1000}) {
          if (batch * world > n) continue;
          std::set<uint32_t> seen;
          for (int rank = 0; rank < world; ++rank) {
            LengthSampler sampler(n, {.batch = batch, .rank = rank, .world = world, .seed = 5}, window);
            sampler.start_epoch(3, length_of);
            EXPECT_EQ(sampler.batches(), n / (batch * world));
            for (int64_t k = 0; k < sampler.batches(); ++k) {
              EXPECT_EQ(std::ssize(sampler.batch(k)), batch);
              for (uint32_t sample : sampler.batch(k)) {
                EXPECT_LT(sample, n);
                EXPECT_TRUE(seen.insert(sample).second);
              }
            }
          }
          EXPECT_EQ(std::ssize(seen), n / (batch * world) * batch * world);
        }
}

// A window contains the samples of whole global batches of Sampler, in another distribution.
TEST(LengthSampler, WindowsContainTheSamplesOfSampler) {
  const SamplerOptions options{.batch = 4, .seed = 9};
  Sampler plain(100, options);
  LengthSampler sampler(100, options, 5);
  plain.start_epoch(2);
  sampler.start_epoch(2, length_of);
  for (int64_t first = 0; first < sampler.batches(); first += 5) {
    std::multiset<uint32_t> a, b;
    for (int64_t k = first; k < first + 5; ++k) {
      for (uint32_t s : plain.batch(k)) a.insert(s);
      for (uint32_t s : sampler.batch(k)) b.insert(s);
    }
    EXPECT_EQ(a, b);
  }
}

// Each window has its own order of batches, from a stream of random numbers that Sampler does not use.
TEST(LengthSampler, BatchesAreSortedAndShuffledInWindows) {
  constexpr int64_t kBatch = 2, kWindow = 4;
  Sampler plain(50, {.batch = kBatch, .seed = 9});
  LengthSampler sampler(50, {.batch = kBatch, .seed = 9}, kWindow);
  plain.start_epoch(2);
  sampler.start_epoch(2, length_of);
  for (int64_t first = 0; first < sampler.batches(); first += kWindow) {
    const int64_t count = std::min(kWindow, sampler.batches() - first);
    std::vector<uint32_t> samples(plain.order().begin() + first * kBatch,
                                  plain.order().begin() + (first + count) * kBatch);
    std::ranges::stable_sort(samples, std::greater(), length_of);
    std::vector<int64_t> place(static_cast<size_t>(count));
    std::iota(place.begin(), place.end(), first);
    RandomStream random(9, Purpose::shuffle, 2, static_cast<uint32_t>(1 + first / kWindow));
    for (size_t left = place.size(); left > 1; --left)
      std::swap(place[left - 1], place[random.below(static_cast<uint32_t>(left))]);
    for (int64_t g = 0; g < count; ++g) {
      const auto batch = sampler.batch(place[static_cast<size_t>(g)]);
      EXPECT_TRUE(std::equal(batch.begin(), batch.end(), samples.begin() + g * kBatch)) << first + g;
    }
  }
}

TEST(LengthSampler, GlobalBatchesDoNotDependOnTheNumberOfWorkers) {
  LengthSampler whole(1000, {.batch = 12, .seed = 9}, 10);
  whole.start_epoch(2, length_of);
  std::vector<LengthSampler> parts;
  for (int rank = 0; rank < 4; ++rank) {
    parts.emplace_back(1000, SamplerOptions{.batch = 3, .rank = rank, .world = 4, .seed = 9}, 10);
    parts.back().start_epoch(2, length_of);
  }
  for (int64_t k = 0; k < whole.batches(); ++k) {
    std::multiset<uint32_t> together;
    for (const LengthSampler& part : parts) together.insert(part.batch(k).begin(), part.batch(k).end());
    EXPECT_EQ(together, std::multiset<uint32_t>(whole.batch(k).begin(), whole.batch(k).end()));
  }
}

// The cost of a batch is its longest sample times its size. Costs are relative; 1 means no padding.
TEST(LengthSampler, BatchesAndRanksHaveSimilarLengths) {
  const auto cost = [](int64_t window) {
    double padded = 0, tokens = 0, slowest = 0;
    std::vector<LengthSampler> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.emplace_back(10000, SamplerOptions{.batch = 8, .rank = rank, .world = 4, .seed = 1}, window);
      ranks.back().start_epoch(0, length_of);
    }
    for (int64_t k = 0; k < ranks[0].batches(); ++k) {
      int64_t longest_of_all = 0;
      for (const LengthSampler& rank : ranks) {
        int64_t longest = 0;
        for (uint32_t s : rank.batch(k))
          longest = std::max(longest, length_of(s)), tokens += static_cast<double>(length_of(s));
        padded += static_cast<double>(8 * longest);
        longest_of_all = std::max(longest_of_all, longest);
      }
      slowest += static_cast<double>(4 * 8 * longest_of_all);
    }
    return std::pair(padded / tokens, slowest / padded);
  };
  EXPECT_GT(cost(1).first, 2);
  EXPECT_LT(cost(64).first, 1.1);
  EXPECT_LT(cost(64).second, 1.01);
}

TEST(LengthSampler, EpochsAndSeedsDifferAndAreRepeatable) {
  const auto epoch = [](uint64_t seed, int64_t number) {
    LengthSampler sampler(500, {.batch = 10, .seed = seed}, 7);
    sampler.start_epoch(number + 1, length_of);
    sampler.start_epoch(number, length_of);
    std::vector<uint32_t> all;
    for (int64_t k = 0; k < sampler.batches(); ++k)
      for (uint32_t s : sampler.batch(k)) all.push_back(s);
    return all;
  };
  EXPECT_EQ(epoch(1, 0), epoch(1, 0));
  EXPECT_NE(epoch(1, 0), epoch(1, 1));
  EXPECT_NE(epoch(1, 0), epoch(2, 0));
}

// Batches of similar length must occur at any position. Without shuffling, every epoch or window would run from long to
// short.
TEST(LengthSampler, ShufflesTheBatches) {
  std::set<int64_t> first, last;
  for (int64_t e = 0; e < 40; ++e) {
    LengthSampler sampler(64, {.batch = 8, .seed = 3}, 8);
    sampler.start_epoch(e, [](int64_t sample) { return sample; });
    first.insert(sampler.batch(0)[0] / 8);
    last.insert(sampler.batch(7)[0] / 8);
  }
  EXPECT_EQ(first.size(), 8u) << "each of the 8 batches is first in one of 40 epochs, almost surely";
  EXPECT_EQ(last.size(), 8u);
}

TEST(LengthSampler, EvaluationCoversEverySampleOnceLongestFirst) {
  for (const int64_t n : {0, 1, 3, 10, 100})
    for (const int world : {1, 3, 8}) {
      std::multiset<uint32_t> seen;
      for (int rank = 0; rank < world; ++rank) {
        LengthSampler sampler(n, {.batch = 4, .rank = rank, .world = world, .train = false}, 2);
        sampler.start_epoch(7, length_of);
        int64_t before = 1000;
        for (int64_t k = 0; k < sampler.batches(); ++k)
          for (uint32_t sample : sampler.batch(k)) {
            EXPECT_LE(length_of(sample), before);
            before = length_of(sample);
            seen.insert(sample);
          }
      }
      EXPECT_EQ(std::ssize(seen), n);
      EXPECT_EQ(std::set<uint32_t>(seen.begin(), seen.end()).size(), seen.size());
    }
}

TEST(LengthSampler, RefusesInvalidArguments) {
  EXPECT_THAT(error_of([] { LengthSampler(10, {}, 0); }), HasSubstr("window of 0"));
  EXPECT_THAT(error_of([] { LengthSampler(10, {.batch = 11}, 1); }), HasSubstr("--batch"));
  LengthSampler sampler(10, {}, 1);
  EXPECT_THAT(error_of([&] { sampler.batch(0); }), HasSubstr("batch 0"));
  sampler.start_epoch(0, length_of);
  EXPECT_THAT(error_of([&] { sampler.batch(10); }), HasSubstr("batch 10 of 10"));
}

}  // namespace length_sampler_test
}  // namespace godwit::data
