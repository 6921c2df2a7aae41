#include "data/text/text_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/context.h"
#include "tests/support.h"

namespace godwit::data {
namespace text_loader_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Sample i has 3 + i mod 11 tokens 100·i, 100·i + 1, …; 10,000·epoch is added to each.
class Numbers : public TextDataset {
 public:
  explicit Numbers(int64_t size, Targets targets = {true, true, true}) : size_(size), targets_(targets) {}

  int64_t size() const override { return size_; }
  int64_t max_length() const override { return maximum; }
  Targets targets() const override { return targets_; }
  int32_t pad() const override { return -7; }
  uint64_t hash() const override { return 1; }
  Extent measure(int64_t sample, int64_t) const override {
    return {3 + sample % 11, targets_.masked ? 1 + sample % 2 : 0};
  }
  TextSample read(int64_t sample, int64_t epoch) const override {
    check(sample != broken, "sample ", sample, " is broken");
    TextSample text;
    for (int32_t i = 0; i < 3 + sample % 11 + (sample == wrong); ++i)
      text.ids.push_back(static_cast<int32_t>(100 * sample + 10000 * epoch) + i);
    text.first = 2;
    text.label = static_cast<int32_t>(sample % 3);
    text.start = 1;
    text.end = 2;
    for (int32_t i = 0; targets_.masked && i < 1 + sample % 2; ++i)
      text.masked_positions.push_back(i + 1), text.masked_labels.push_back(static_cast<int32_t>(sample));
    return text;
  }

  int64_t broken = -1, wrong = -1, maximum = 13;

 private:
  int64_t size_;
  Targets targets_;
};

std::vector<TextBatch> drain(TextLoader& loader) {
  std::vector<TextBatch> batches;
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  return batches;
}

std::vector<double> values(const Tensor& tensor) {
  std::vector<double> all;
  for (int64_t i = 0; i < tensor.numel(); ++i) all.push_back(tensor.item(i));
  return all;
}

bool same(const std::vector<TextBatch>& a, const std::vector<TextBatch>& b) {
  return std::ranges::equal(a, b, [](const TextBatch& x, const TextBatch& y) {
    bool equal = x.samples == y.samples;
    for (Tensor TextBatch::*field :
         {&TextBatch::ids, &TextBatch::token_type_ids, &TextBatch::mask, &TextBatch::labels, &TextBatch::starts,
          &TextBatch::ends, &TextBatch::masked_positions, &TextBatch::masked_labels})
      equal = equal && (x.*field).shape() == (y.*field).shape() && values(x.*field) == values(y.*field);
    return equal;
  });
}

TEST(TextLoader, PadsToTheLongestSampleInMultiplesOfEight) {
  const Numbers source(6);
  TextLoader loader(source, {.batch = 2, .train = false});
  EXPECT_FALSE(loader.next()) << "no epoch has been started";
  loader.start_epoch(0);
  const auto batches = drain(loader);
  ASSERT_EQ(batches.size(), 3u);
  const TextBatch& batch = batches[2];  // samples 1 and 0, of 4 and 3 tokens
  EXPECT_THAT(batch.samples, ElementsAre(1, 0));
  EXPECT_EQ(batch.ids.shape(), (Shape{2, 8}));
  EXPECT_THAT(values(batch.ids), ElementsAre(100, 101, 102, 103, -7, -7, -7, -7, 0, 1, 2, -7, -7, -7, -7, -7));
  EXPECT_THAT(values(batch.token_type_ids), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(values(batch.mask), ElementsAre(1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(values(batch.labels), ElementsAre(1, 0));
  EXPECT_THAT(values(batch.starts), ElementsAre(1, 1));
  EXPECT_THAT(values(batch.ends), ElementsAre(2, 2));
  EXPECT_THAT(values(batch.masked_positions), ElementsAre(1, 2, 9)) << "positions index both rows together";
  EXPECT_THAT(values(batch.masked_labels), ElementsAre(1, 1, 0));
}

TEST(TextLoader, NeverPadsBeyondTheMaximumLength) {
  Numbers source(22);
  for (const int64_t maximum : {13, 9}) {  // some samples have 13 tokens
    source.maximum = maximum;
    TextLoader loader(source, {.batch = 2, .train = false});
    loader.start_epoch(0);
    for (const TextBatch& batch : drain(loader)) {
      int64_t longest = 0;
      for (int64_t sample : batch.samples) longest = std::max(longest, source.measure(sample, 0).tokens);
      EXPECT_EQ(batch.ids.dim(1), longest <= 8 ? 8 : std::max(longest, maximum));
    }
  }
}

TEST(TextLoader, OmitsTargetsThatTheDatasetDoesNotHave) {
  const auto first = [](TextDataset::Targets targets) {
    const Numbers source(4, targets);
    TextLoader loader(source, {.batch = 4, .train = false});
    loader.start_epoch(0);
    return *loader.next();
  };
  const TextBatch spans = first({.spans = true}), labels = first({.labels = true}), masked = first({.masked = true});
  EXPECT_TRUE(spans.starts.defined() && spans.ends.defined() && !spans.labels.defined() &&
              !spans.masked_labels.defined());
  EXPECT_TRUE(labels.labels.defined() && !labels.starts.defined() && !labels.masked_positions.defined());
  EXPECT_TRUE(masked.masked_positions.defined() && masked.masked_labels.defined() && !masked.labels.defined());
}

TEST(TextLoader, TrainingReadsNewSamplesInEachEpochAndEvaluationDoesNot) {
  const Numbers source(8);
  for (const bool train : {true, false}) {
    TextLoader loader(source, {.batch = 8, .train = train});
    loader.start_epoch(3);
    const TextBatch batch = *loader.next();
    EXPECT_EQ(batch.ids.item(0), 100 * batch.samples[0] + (train ? 30000 : 0));
  }
}

TEST(TextLoader, IsDeterministicForAnyPrefetchAndWorkersAndResumesMidEpoch) {
  const Numbers source(60);
  const LoaderOptions options{.batch = 7, .seed = 4};
  TextLoader a(source, options, 3);
  a.start_epoch(5);
  const auto reference = drain(a);
  EXPECT_EQ(std::ssize(reference), a.batches());
  for (int prefetch : {1, 3, 50})
    for (int workers : {1, 2, 5}) {
      LoaderOptions other = options;
      other.prefetch = prefetch;
      other.workers = workers;
      TextLoader b(source, other, 3);
      b.start_epoch(4);
      b.next();
      b.start_epoch(5);
      EXPECT_TRUE(same(drain(b), reference));
      b.start_epoch(5, 3);
      EXPECT_TRUE(same(drain(b), {reference.begin() + 3, reference.end()}));
      b.start_epoch(5, b.batches());
      EXPECT_FALSE(b.next());
    }
}

TEST(TextLoader, EvaluationCoversEverySampleOnceOverAllRanks) {
  const Numbers source(23);
  std::multiset<int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    TextLoader loader(source, {.batch = 4, .rank = rank, .world = 3, .train = false});
    loader.start_epoch(0);
    for (const TextBatch& batch : drain(loader)) seen.insert(batch.samples.begin(), batch.samples.end());
  }
  EXPECT_EQ(seen.size(), 23u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 23u);
}

TEST(TextLoader, BatchesAreAllocatedFromTheCreatorsPool) {
  const Numbers source(64);
  const auto pool = std::make_shared<Pool>();
  ContextGuard guard({.pool = pool});
  TextLoader loader(source, {.batch = 8, .prefetch = 2, .workers = 3});
  loader.start_epoch(0);
  while (loader.next()) {
  }
  EXPECT_GE(pool->stats().peak_bytes_in_use, 8 * 13 * 9);
}

TEST(TextLoader, RethrowsErrorsOfItsThreadsAndContinues) {
  Numbers source(12);
  source.broken = 5;
  for (int workers : {1, 3}) {
    TextLoader loader(source, {.batch = 4, .train = false, .workers = workers});
    loader.start_epoch(0);
    EXPECT_TRUE(loader.next());
    EXPECT_THAT(error_of([&] { loader.next(); }), HasSubstr("sample 5 is broken"));
    EXPECT_TRUE(loader.next());
    EXPECT_FALSE(loader.next());
  }
}

TEST(TextLoader, RefusesASampleThatDoesNotMatchItsMeasure) {
  Numbers source(4);
  source.wrong = 2;
  TextLoader loader(source, {.batch = 4, .train = false});
  loader.start_epoch(0);
  EXPECT_THAT(error_of([&] { loader.next(); }),
              HasSubstr("sample 2 has 6 tokens, 1 of them masked, but measure() returned 5 and 1"));
}

TEST(TextLoader, RefusesBadOptions) {
  const Numbers source(10);
  EXPECT_THAT(error_of([&] { TextLoader(source, {.batch = 11}); }), HasSubstr("--batch"));
  EXPECT_THAT(error_of([&] { TextLoader(source, {.prefetch = 0}); }), HasSubstr("prefetch 0"));
  EXPECT_THAT(error_of([&] { TextLoader(source, {}, 0); }), HasSubstr("window of 0"));
  EXPECT_THAT(error_of([&] { TextLoader(source, {}).start_epoch(0, 11); }), HasSubstr("batch 11 of 10"));
}

}  // namespace text_loader_test
}  // namespace godwit::data
