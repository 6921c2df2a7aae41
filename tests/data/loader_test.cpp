#include "data/image/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/context.h"
#include "tests/data/files.h"

namespace godwit::data {
namespace loader_test {

using testing::HasSubstr;

// n images of h×w×c; pixel (0, 0, 0) of image i is i.
InMemoryDataset make_source(int64_t n, Shape shape = {4, 3, 1}, TransformOptions options = {}) {
  RawImages dataset{.image_shape = shape, .classes = 10, .pixels = {}, .labels = {}};
  dataset.pixels.resize(static_cast<size_t>(n * shape.numel()), 100);
  for (int64_t i = 0; i < n; ++i) {
    dataset.pixels[static_cast<size_t>(i * shape.numel())] = static_cast<uint8_t>(i);
    dataset.labels.push_back(static_cast<int32_t>(i % 10));
  }
  return {std::move(dataset), std::move(options)};
}

std::vector<Batch> drain(Loader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  return batches;
}

int64_t first_pixel(const Batch& batch, int64_t i) {
  return std::lround(batch.images.item(i * batch.images.numel() / batch.images.dim(0)) * 255);
}

bool same(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  return std::ranges::equal(a, b, [](const Batch& x, const Batch& y) {
    return std::ranges::equal(x.images.span<float>(), y.images.span<float>()) &&
           std::ranges::equal(x.labels.span<int32_t>(), y.labels.span<int32_t>());
  });
}

TEST(Loader, ReturnsTheBatchesOfTheSampler) {
  const InMemoryDataset source = make_source(50);
  Loader loader(source, {.batch = 4, .rank = 1, .world = 3, .seed = 8});
  EXPECT_FALSE(loader.next()) << "no epoch has been started";
  Sampler sampler(50, {.batch = 4, .rank = 1, .world = 3, .seed = 8});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    sampler.start_epoch(epoch);
    const auto batches = drain(loader);
    ASSERT_EQ(static_cast<int64_t>(batches.size()), sampler.batches());
    for (size_t k = 0; k < batches.size(); ++k) {
      EXPECT_EQ(batches[k].images.shape(), (Shape{4, 4, 3, 1}));
      EXPECT_EQ(batches[k].labels.shape(), (Shape{4}));
      for (int64_t i = 0; i < 4; ++i) {
        const uint32_t sample = sampler.batch(static_cast<int64_t>(k))[static_cast<size_t>(i)];
        EXPECT_EQ(first_pixel(batches[k], i), sample);
        EXPECT_EQ(batches[k].labels.item(i), sample % 10);
      }
    }
    EXPECT_FALSE(loader.next()) << "the epoch is over";
  }
}

TEST(Loader, EvaluationHasASmallerLastBatchAndEmptyRanks) {
  const InMemoryDataset source = make_source(3, {4, 3, 1}, {.pad = 2, .flip = true});
  int64_t seen = 0;
  for (int rank = 0; rank < 5; ++rank) {
    Loader loader(source, {.batch = 2, .rank = rank, .world = 5, .train = false});
    loader.start_epoch(0);
    for (const Batch& batch : drain(loader)) {
      for (int64_t i = 0; i < batch.labels.dim(0); ++i) EXPECT_EQ(first_pixel(batch, i), seen++) << "not augmented";
    }
  }
  EXPECT_EQ(seen, 3);
  Loader whole(source, {.batch = 2, .train = false});
  whole.start_epoch(0);
  const auto batches = drain(whole);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[1].images.shape(), (Shape{1, 4, 3, 1}));
}

TEST(Loader, IsDeterministicForAnyPrefetchAndWorkersAndResumesMidEpoch) {
  const InMemoryDataset source = make_source(
      60, {8, 8, 3}, {.mean = {0.1f, 0.2f, 0.3f}, .std = {1, 2, 3}, .pad = 2, .flip = true, .seed = 4});
  const LoaderOptions options{.batch = 7, .seed = 4};
  Loader a(source, options);
  a.start_epoch(5);
  const auto reference = drain(a);
  for (int prefetch : {1, 3, 50})
    for (int workers : {1, 2, 5}) {
      LoaderOptions other = options;
      other.prefetch = prefetch;
      other.workers = workers;
      Loader b(source, other);
      b.start_epoch(5);
      EXPECT_TRUE(same(drain(b), reference));
      b.start_epoch(5, 3);
      EXPECT_TRUE(same(drain(b), {reference.begin() + 3, reference.end()}));
      b.start_epoch(5, b.batches());
      EXPECT_FALSE(b.next());
    }
}

TEST(Loader, CanStartAnEpochDuringAnother) {
  const InMemoryDataset source = make_source(100);
  Loader loader(source, {.batch = 5, .seed = 2, .prefetch = 4});
  loader.start_epoch(1);
  const auto reference = drain(loader);
  for (int taken = 0; taken < 6; ++taken) {
    loader.start_epoch(0);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
    loader.start_epoch(1);
    EXPECT_TRUE(same(drain(loader), reference));
  }
}

TEST(Loader, CanBeDestroyedAtAnyTime) {
  const InMemoryDataset source = make_source(64);
  for (int i = 0; i < 50; ++i) {
    Loader loader(source, {.batch = 4, .prefetch = 1 + i % 5, .workers = 1 + i % 3});
    if (i % 3) loader.start_epoch(i);
    for (int taken = 0; taken < i % 7; ++taken) loader.next();
  }
}

TEST(Loader, PrefetchLimitsItsMemory) {
  const InMemoryDataset source = make_source(200, {16, 16, 1});
  const auto pool = std::make_shared<Pool>();
  ContextGuard guard({.pool = pool});
  Loader loader(source, {.batch = 8, .prefetch = 2, .workers = 3});
  loader.start_epoch(0);
  int64_t batches = 0;
  while (auto batch = loader.next()) ++batches;
  EXPECT_EQ(batches, 25);
  const int64_t bytes = 8 * (16 * 16 + 1) * 4;
  EXPECT_GE(pool->stats().peak_bytes_in_use, bytes) << "batches must be allocated from the creator's pool";
  EXPECT_LE(pool->stats().peak_bytes_in_use, 4 * bytes) << "two prefetched, one in use, one just taken";
}

// A dataset whose samples 5 and 7 cannot be read.
class Failing : public InMemoryDataset {
 public:
  Failing() : InMemoryDataset(make_source(12)) {}
  int32_t read(int64_t sample, float* to) const override {
    check(sample != 5 && sample != 7, "sample ", sample, " is broken");
    return InMemoryDataset::read(sample, to);
  }
};

TEST(Loader, RethrowsErrorsOfItsThreadsAndContinues) {
  const Failing source;
  for (int workers : {1, 3}) {
    Loader loader(source, {.batch = 4, .train = false, .workers = workers});
    loader.start_epoch(0);
    EXPECT_TRUE(loader.next());
    EXPECT_THAT(error_of([&] { loader.next(); }), HasSubstr(workers == 1 ? "sample 5 is broken" : " is broken"));
    EXPECT_TRUE(loader.next());
    EXPECT_FALSE(loader.next());
  }
}

class HugeImage : public ImageDataset {
 public:
  int64_t size() const override { return 1; }
  int64_t classes() const override { return 1; }
  Shape image_shape() const override { return {int64_t{1} << 30, int64_t{1} << 20, 1}; }
  uint64_t hash() const override { return 0; }
  int32_t read(int64_t, float*) const override { return 0; }
  int32_t read_augmented(int64_t, int64_t, float*) const override { return 0; }
};

TEST(Loader, RefusesBatchesLargerThanMemory) {
  const HugeImage source;
  Loader loader(source, {.train = false});
  EXPECT_THAT(error_of([&] { loader.start_epoch(0); }), HasSubstr("memory"));
}

TEST(InMemoryDataset, RefusesPixelsAndLabelsThatDoNotFit) {
  const auto error = [](size_t pixels, int32_t label) {
    return error_of([&] { InMemoryDataset({{2, 2, 1}, 3, std::vector<uint8_t>(pixels), {0, label}}, {}); });
  };
  EXPECT_THAT(error(7, 1), HasSubstr("need 8 pixel values, there are 7"));
  EXPECT_THAT(error(8, 3), HasSubstr("a label is 3; expected 0 to 2"));
  const InMemoryDataset dataset({{2, 2, 1}, 3, std::vector<uint8_t>(8), {0, 2}}, {});
  EXPECT_EQ(dataset.size(), 2);
}

TEST(Loader, RefusesBadOptions) {
  const InMemoryDataset source = make_source(10);
  EXPECT_THAT(error_of([&] { Loader(source, {.batch = 11}); }), HasSubstr("--batch"));
  EXPECT_THAT(error_of([&] { Loader(source, {.prefetch = 0}); }), HasSubstr("prefetch 0"));
  EXPECT_THAT(error_of([&] { Loader(source, {.workers = 0}); }), HasSubstr("0 workers"));
  EXPECT_THAT(error_of([&] { Loader(source, {}).start_epoch(0, 11); }), HasSubstr("batch 11 of 10"));
}

}  // namespace loader_test
}  // namespace godwit::data
