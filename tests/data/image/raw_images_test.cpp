#include "data/image/raw_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "tests/data/files.h"

namespace godwit::data {
namespace raw_images_test {

using testing::AllOf;
using testing::HasSubstr;

// Four training images and two test images of 2×3 pixels, in three classes.
void write_small(const TempFolder& folder) {
  Bytes pixels(24);
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  write(folder / "train-images-idx3-ubyte", idx_bytes({4, 2, 3}, pixels));
  write(folder / "train-labels.idx1-ubyte", idx_bytes({4}, {0, 2, 1, 0}));
  write(folder / "t10k-images.idx3-ubyte.gz", gzip(idx_bytes({2, 2, 3}, Bytes(12, 9))));
  write(folder / "t10k-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, {1, 0})));
}

TEST(RawImages, AcceptsAllFileNameVariants) {
  TempFolder folder;
  write_small(folder);
  const RawImages train = load_idx_folder(folder.str(), Split::train);
  EXPECT_EQ(train.image_shape, (Shape{2, 3, 1}));
  EXPECT_EQ(train.classes, 3);
  EXPECT_EQ(train.labels, (std::vector<int32_t>{0, 2, 1, 0}));
  EXPECT_EQ(train.image(2)[1], 13);
  const RawImages test = load_idx_folder(folder.str(), Split::test);
  EXPECT_EQ(test.size(), 2);
  EXPECT_EQ(test.classes, 3) << "test data must have the classes of the training labels";
}

TEST(RawImages, ReadsColorImages) {
  TempFolder folder;
  write_small(folder);
  write(folder / "train-images-idx3-ubyte", idx_bytes({4, 2, 1, 3}, Bytes(24)));
  EXPECT_EQ(load_idx_folder(folder.str(), Split::train).image_shape, (Shape{2, 1, 3}));
}

TEST(RawImages, NamesTheErrorInAFolder) {
  TempFolder folder;
  const auto error = [&](Split split = Split::train) {
    return error_of([&] { load_idx_folder(folder.str(), split); });
  };
  EXPECT_THAT(error_of([&] { load_idx_folder(folder / "none", Split::train); }),
              AllOf(HasSubstr(folder / "none"), HasSubstr("train-images-idx3-ubyte"),
                    HasSubstr("apt-get install dataset-fashion-mnist"), HasSubstr("--data")));
  EXPECT_THAT(error(), AllOf(HasSubstr("train-images"), HasSubstr(folder.str()), HasSubstr("apt-get")));
  write_small(folder);
  EXPECT_THAT(error_of([&] { load_idx_folder(folder / "train-images-idx3-ubyte", Split::train); }),
              HasSubstr("is a file"));

  write(folder / "t10k-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, {3, 0})));
  EXPECT_THAT(error(Split::test), HasSubstr("label 3 of image 0 is not among the 3 classes"));
  write(folder / "train-labels.idx1-ubyte", idx_bytes({3}, {0, 2, 1}));
  EXPECT_THAT(error(), AllOf(HasSubstr("4 images"), HasSubstr("3 labels")));
  write(folder / "train-labels.idx1-ubyte", idx_bytes({0}, {}));
  EXPECT_THAT(error(), HasSubstr("no labels"));
  write(folder / "train-labels.idx1-ubyte", idx_bytes({2, 2}, {0, 2, 1, 0}));
  EXPECT_THAT(error(), HasSubstr("2 dimensions"));
  write_small(folder);
  write(folder / "train-images-idx3-ubyte", idx_bytes({4, 0, 3}, {}));
  EXPECT_THAT(error(), HasSubstr("no pixels"));
  write(folder / "train-images-idx3-ubyte", idx_bytes({4, 6}, Bytes(24)));
  EXPECT_THAT(error(), HasSubstr("2 dimensions"));
}

TEST(RawImages, ChannelStatsMatchTheDefinition) {
  RawImages dataset{.image_shape = {1, 2, 3}, .classes = 1, .pixels = {0, 10, 255, 4, 10, 255}, .labels = {0}};
  const ChannelStats stats = channel_stats(dataset);
  EXPECT_FLOAT_EQ(stats.mean[0], 2.f / 255);
  EXPECT_FLOAT_EQ(stats.std[0], 2.f / 255);
  EXPECT_FLOAT_EQ(stats.mean[1], 10.f / 255);
  EXPECT_EQ(stats.std[1], 0.f);
  EXPECT_EQ(stats.mean[2], 1.f);
}

// Published properties: 60,000 + 10,000 images of 28×28, ten classes of equal size, mean 0.2860, std 0.3530.
TEST(RawImages, ReadsFashionMnistOfTheDistribution) {
  if (!std::filesystem::exists(default_data_folder())) GTEST_SKIP() << default_data_folder() << " is not installed";
  const RawImages train = load_idx_folder(default_data_folder(), Split::train);
  const RawImages test = load_idx_folder(default_data_folder(), Split::test);
  EXPECT_EQ(train.size(), 60000);
  EXPECT_EQ(test.size(), 10000);
  EXPECT_EQ(train.image_shape, (Shape{28, 28, 1}));
  EXPECT_EQ(train.classes, 10);
  EXPECT_EQ(test.classes, 10);
  std::vector<int> counts(10);
  for (int32_t label : train.labels) ++counts[static_cast<size_t>(label)];
  EXPECT_THAT(counts, testing::Each(6000));
  const ChannelStats stats = channel_stats(train);
  EXPECT_NEAR(stats.mean[0], 0.2860, 5e-5);
  EXPECT_NEAR(stats.std[0], 0.3530, 5e-5);
}

}  // namespace raw_images_test
}  // namespace godwit::data
