#include "data/image/image_folder_dataset.h"

#include <gmock/gmock.h>

#include "data/image/augment.h"
#include "data/image/loader.h"
#include "tests/data/golden.h"

namespace godwit::data {
namespace image_folder_dataset_test {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Five files of two classes. damaged() and broken() are corrupt files with a valid header and end.
class ImageFolderDatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    write(folder_ / "cat/0.jpg", golden_jpeg("colour"));
    write(folder_ / "cat/1.jpg", golden_jpeg("grey"));
    write(folder_ / "dog/2.jpg", golden_jpeg("cmyk"));
    write(folder_ / "dog/3.jpg", golden_jpeg("large"));
    write(folder_ / "dog/4.jpg", golden_jpeg("progressive"));
  }

  std::vector<ImageFile> files() const { return index_image_folder(folder_.str(), {}).train; }

  ImageFolderDataset source(PhotoOptions options = {.crop = 24, .resize = 28}) const {
    return ImageFolderDataset(folder_.str(), {"cat", "dog"}, files(), options);
  }

  // Can be decoded partly: a progressive file truncated within its scans.
  static Bytes damaged() {
    Bytes bytes = golden_jpeg("large");
    std::fill(bytes.begin() + 6000, bytes.end() - 2, uint8_t{0});
    return bytes;
  }

  // Cannot be decoded: a progressive file with an invalid second Huffman table, which libjpeg detects only when it
  // reads it.
  static Bytes broken() {
    Bytes bytes = golden_jpeg("progressive");
    const auto scan = find_marker(bytes, 0xda), table = find_marker(bytes, 0xc4, scan - bytes.begin());
    std::fill(table + 5, table + 21, uint8_t{0xff});
    return bytes;
  }

  const TempFolder folder_;
};

std::vector<float> read(const ImageFolderDataset& source, int64_t sample, int32_t label) {
  const Shape shape = source.image_shape();
  std::vector<float> image(static_cast<size_t>(shape.numel()));
  EXPECT_EQ(source.read(sample, image.data()), label);
  return image;
}

std::vector<float> augmented(const ImageFolderDataset& source, int64_t sample, int64_t epoch) {
  std::vector<float> image(static_cast<size_t>(source.image_shape().numel()));
  source.read_augmented(sample, epoch, image.data());
  return image;
}

TEST_F(ImageFolderDatasetTest, ReturnsNormalizedCenterCrops) {
  const ImageFolderDataset plain = source({.crop = 24, .resize = 28, .mean = {0, 0, 0}, .std = {1, 1, 1}});
  const ImageFolderDataset normalized = source();
  EXPECT_EQ(normalized.size(), 5);
  EXPECT_EQ(normalized.classes(), 2);
  EXPECT_EQ(normalized.image_shape(), (Shape{24, 24, 3}));
  const float mean[] = {0.485f, 0.456f, 0.406f}, std[] = {0.229f, 0.224f, 0.225f};
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<float> raw = read(plain, i, i < 2 ? 0 : 1), values = read(normalized, i, i < 2 ? 0 : 1);
    for (size_t k = 0; k < raw.size(); ++k) {
      EXPECT_TRUE(raw[k] >= -1e-5f && raw[k] <= 1.00001f);
      EXPECT_NEAR(values[k], (raw[k] - mean[k % 3]) / std[k % 3], 1e-5);  // float32 rounding of values up to 3
    }
  }
  EXPECT_TRUE(normalized.warnings().empty());
}

TEST_F(ImageFolderDatasetTest, AugmentationDependsOnSeedEpochAndSample) {
  const ImageFolderDataset a = source({.crop = 24, .resize = 28, .color_jitter = 0.4, .seed = 1}),
                     same = source({.crop = 24, .resize = 28, .color_jitter = 0.4, .seed = 1});
  const ImageFolderDataset other_seed = source({.crop = 24, .resize = 28, .color_jitter = 0.4, .seed = 2});
  const ImageFolderDataset calm = source({.crop = 24, .resize = 28, .seed = 1});
  EXPECT_EQ(augmented(a, 3, 2), augmented(same, 3, 2));
  EXPECT_NE(augmented(a, 3, 2), augmented(a, 3, 1));
  EXPECT_NE(augmented(a, 3, 2), augmented(other_seed, 3, 2));
  EXPECT_NE(augmented(a, 3, 2), augmented(calm, 3, 2));
}

// Half of the training images must be mirrored, which reverses the gradient in the green channel.
TEST_F(ImageFolderDatasetTest, MirrorsHalfOfTheImages) {
  const ImageFolderDataset flipping = source(), straight = source({.crop = 24, .resize = 28, .flip = false});
  const auto grows = [](const std::vector<float>& image) { return image[23 * 3 + 1] > image[1]; };
  int mirrored = 0;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    mirrored += !grows(augmented(flipping, 0, epoch));
    EXPECT_TRUE(grows(augmented(straight, 0, epoch)));
  }
  EXPECT_NEAR(mirrored, 100, 36);  // five standard deviations of a fair coin
}

TEST_F(ImageFolderDatasetTest, UsesCorruptFilesAndReplacesBrokenOnes) {
  write(folder_ / "cat/1.jpg", damaged());
  write(folder_ / "dog/4.jpg", broken());
  const ImageFolderDataset lenient = source();
  ASSERT_EQ(lenient.size(), 5) << "both files have valid headers";
  read(lenient, 1, 0);
  EXPECT_EQ(read(lenient, 4, 0), read(lenient, 0, 0)) << "replaced by the next file, here the first";
  EXPECT_THAT(lenient.warnings(), ElementsAre(AllOf(HasSubstr("cat/1.jpg"), HasSubstr("is corrupt")),
                                              AllOf(HasSubstr("dog/4.jpg"), HasSubstr("is used instead"))));
  EXPECT_EQ(augmented(lenient, 4, 7), augmented(source(), 4, 7));

  const ImageFolderDataset strict = source({.crop = 24, .resize = 28, .strict = true});
  std::vector<float> to(24 * 24 * 3);
  EXPECT_THAT(error_of([&] { strict.read(1, to.data()); }), HasSubstr("cat/1.jpg: is corrupt (--strict)"));
  EXPECT_THAT(error_of([&] { strict.read(4, to.data()); }), AllOf(HasSubstr("dog/4.jpg"), HasSubstr("--strict")));
}

TEST_F(ImageFolderDatasetTest, FilesThatChangeDuringTheRunAreErrors) {
  const ImageFolderDataset images = source();
  std::vector<float> to(24 * 24 * 3);
  write(folder_ / "cat/0.jpg", golden_jpeg("large"));
  EXPECT_THAT(error_of([&] { images.read(0, to.data()); }),
              AllOf(HasSubstr("cat/0.jpg"), HasSubstr("must not change")));
  fs::remove(folder_ / "cat/0.jpg");
  EXPECT_THAT(error_of([&] { images.read(0, to.data()); }), AllOf(HasSubstr("cat/0.jpg"), HasSubstr("no such file")));
}

TEST_F(ImageFolderDatasetTest, HashDependsOnNamesSizesAndClasses) {
  const uint64_t hash = source().hash();
  EXPECT_EQ(source().hash(), hash);
  EXPECT_NE(ImageFolderDataset(folder_.str(), {"cat", "dot"}, files(), {}).hash(), hash);
  std::vector<ImageFile> fewer = files();
  fewer.pop_back();
  EXPECT_NE(ImageFolderDataset(folder_.str(), {"cat", "dog"}, fewer, {}).hash(), hash);
  write(folder_ / "cat/1.jpg", golden_jpeg("colour"));
  EXPECT_NE(source().hash(), hash);
}

TEST_F(ImageFolderDatasetTest, LoadersReturnTheSameBitsForAnyWorkerCount) {
  const ImageFolderDataset images = source({.crop = 24, .resize = 28, .color_jitter = 0.2, .seed = 5});
  std::vector<float> reference;
  for (int workers : {1, 3}) {
    Loader loader(images, {.batch = 2, .seed = 5, .workers = workers});
    std::vector<float> all;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      loader.start_epoch(epoch);
      while (auto batch = loader.next())
        all.insert(all.end(), batch->images.span<float>().begin(), batch->images.span<float>().end());
    }
    if (workers == 1) reference = all;
    EXPECT_EQ(all, reference);
  }
}

TEST_F(ImageFolderDatasetTest, RefusesBadOptions) {
  EXPECT_THAT(error_of([&] { source({.crop = 24, .resize = 20}); }), HasSubstr("resize 20 and crop 24"));
  EXPECT_THAT(error_of([&] { source({.mean = {0}, .std = {1}}); }), HasSubstr("1 means"));
  EXPECT_THAT(error_of([&] { source({.std = {1, 0, 1}}); }), HasSubstr("positive"));
}

}  // namespace image_folder_dataset_test
}  // namespace godwit::data
