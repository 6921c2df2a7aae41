#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/data/files.h"

namespace godwit::data {
namespace sampler_test {

using testing::AllOf;
using testing::HasSubstr;

std::vector<uint32_t> all_of(const Sampler& sampler) {
  std::vector<uint32_t> samples;
  for (int64_t k = 0; k < sampler.batches(); ++k)
    for (uint32_t sample : sampler.batch(k)) samples.push_back(sample);
  return samples;
}

TEST(Sampler, RanksGetDisjointSamplesAndEquallyManyBatches) {
  for (const int64_t n : {1, 7, 64, 101, 1000})
    for (const int world : {1, 2, 3, 8})
      for (const int64_t batch : {1, 3, 8}) {
        if (batch * world > n) continue;
        std::set<uint32_t> seen;
        for (int rank = 0; rank < world; ++rank) {
          Sampler sampler(n, {.batch = batch, .rank = rank, .world = world, .seed = 5});
          sampler.start_epoch(3);
          EXPECT_EQ(sampler.batches(), n / (batch * world));
          for (int64_t k = 0; k < sampler.batches(); ++k)
            EXPECT_EQ(static_cast<int64_t>(sampler.batch(k).size()), batch);
          for (uint32_t sample : all_of(sampler)) {
            EXPECT_LT(sample, n);
            EXPECT_TRUE(seen.insert(sample).second);
          }
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), n / (batch * world) * batch * world);
      }
}

// The samples of a global batch must not depend on the number of workers.
TEST(Sampler, GlobalBatchesDoNotDependOnTheNumberOfWorkers) {
  Sampler whole(100, {.batch = 12, .seed = 9});
  whole.start_epoch(2);
  for (int rank = 0; rank < 4; ++rank) {
    Sampler part(100, {.batch = 3, .rank = rank, .world = 4, .seed = 9});
    part.start_epoch(2);
    ASSERT_EQ(part.batches(), whole.batches());
    for (int64_t k = 0; k < part.batches(); ++k)
      EXPECT_TRUE(std::ranges::equal(part.batch(k), whole.batch(k).subspan(static_cast<size_t>(3 * rank), 3)));
  }
}

TEST(Sampler, EpochsAndSeedsShuffleDifferently) {
  Sampler a(500, {.batch = 10, .seed = 1}), b(500, {.batch = 10, .seed = 2});
  a.start_epoch(0);
  const auto first = all_of(a);
  a.start_epoch(1);
  EXPECT_NE(all_of(a), first);
  a.start_epoch(0);
  EXPECT_EQ(all_of(a), first) << "epochs must be repeatable";
  EXPECT_NE(all_of(b), first);
}

// Every sample is equally likely at every position: 2000 epochs of 5 samples, expected count 400 ± 18 (one sigma).
TEST(Sampler, ShufflesUniformly) {
  Sampler sampler(5, {.seed = 3});
  int counts[5][5] = {};
  for (int epoch = 0; epoch < 2000; ++epoch) {
    sampler.start_epoch(epoch);
    const auto order = all_of(sampler);
    for (size_t i = 0; i < 5; ++i) ++counts[i][order[i]];
  }
  for (const auto& row : counts)
    for (int count : row) EXPECT_NEAR(count, 400, 5 * 18);
}

TEST(Sampler, EvaluationCoversEverySampleOnceInOrder) {
  for (const int64_t n : {0, 1, 3, 10, 100})
    for (const int world : {1, 3, 8})
      for (const int64_t batch : {1, 4, 200}) {
        std::vector<uint32_t> seen;
        for (int rank = 0; rank < world; ++rank) {
          Sampler sampler(n, {.batch = batch, .rank = rank, .world = world, .train = false});
          sampler.start_epoch(7);
          const auto samples = all_of(sampler);
          EXPECT_LE(static_cast<int64_t>(samples.size()), n / world + 1);
          seen.insert(seen.end(), samples.begin(), samples.end());
        }
        ASSERT_EQ(static_cast<int64_t>(seen.size()), n);
        for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
      }
}

TEST(Sampler, RefusesInvalidArguments) {
  const auto error = [](int64_t n, SamplerOptions options) { return error_of([&] { Sampler(n, options); }); };
  EXPECT_THAT(error(100, {.batch = 26, .world = 4}), AllOf(HasSubstr("26"), HasSubstr("100"), HasSubstr("at most 25")));
  EXPECT_THAT(error(100, {.batch = INT64_MAX, .world = 4}), HasSubstr("global batch"));
  EXPECT_THAT(error(100, {.batch = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(error(3, {.batch = 1, .world = 4}), HasSubstr("fewer workers"));
  EXPECT_THAT(error(0, {}), HasSubstr("empty"));
  EXPECT_THAT(error(10, {.rank = 2, .world = 2}), HasSubstr("rank 2 of 2"));
}

}  // namespace sampler_test
}  // namespace godwit::data
