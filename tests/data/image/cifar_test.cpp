#include "data/image/cifar.h"

#include <gmock/gmock.h>

#include "data/image/layout.h"
#include "tests/support.h"

namespace godwit::data {
namespace cifar_test {

using testing::AllOf;
using testing::HasSubstr;

// One record: labels, then red, green and blue planes with values first, first+1, … (modulo 256), offset by 80 per
// channel.
Bytes record(const Bytes& labels, int first) {
  Bytes bytes = labels;
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 1024; ++p) bytes.push_back(static_cast<uint8_t>(first + p + 80 * c));
  return bytes;
}

Bytes join(const Bytes& a, const Bytes& b) {
  Bytes all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

void write_cifar10(const TempFolder& folder) {
  for (int k = 1; k <= 5; ++k)
    write(folder / ("data_batch_" + std::to_string(k) + ".bin"),
          join(record({static_cast<uint8_t>(k)}, k), record({9}, 100 + k)));
  write(folder / "test_batch.bin", record({0}, 7));
}

TEST(Cifar, ReadsCifar10InOrderAsChannelsLast) {
  const TempFolder folder;
  write_cifar10(folder);
  EXPECT_EQ(layout_of(folder.str()), Layout::cifar);
  const RawImages train = load_cifar_folder(folder.str(), Split::train);
  EXPECT_EQ(train.image_shape, (Shape{32, 32, 3}));
  EXPECT_EQ(train.classes, 10);
  EXPECT_EQ(train.labels, (std::vector<int32_t>{1, 9, 2, 9, 3, 9, 4, 9, 5, 9}));
  for (int64_t i : {0, 5})
    for (int p = 0; p < 1024; ++p)
      for (int c = 0; c < 3; ++c) {
        const int first = i == 0 ? 1 : 103;
        ASSERT_EQ(train.image(i)[p * 3 + c], static_cast<uint8_t>(first + p + 80 * c)) << i << ' ' << p << ' ' << c;
      }
  EXPECT_EQ(load_cifar_folder(folder.str(), Split::test).labels, (std::vector<int32_t>{0}));
}

TEST(Cifar, ReadsTheFineLabelsOfCifar100) {
  const TempFolder folder;
  write(folder / "train.bin", join(record({19, 99}, 1), record({3, 42}, 2)));
  write(folder / "test.bin", record({1, 7}, 3));
  EXPECT_EQ(layout_of(folder.str()), Layout::cifar);
  const RawImages train = load_cifar_folder(folder.str(), Split::train);
  EXPECT_EQ(train.classes, 100);
  EXPECT_EQ(train.labels, (std::vector<int32_t>{99, 42}));
  EXPECT_EQ(train.image(1)[0], 2);
  EXPECT_EQ(load_cifar_folder(folder.str(), Split::test).size(), 1);
}

TEST(Cifar, NamesTheErrorInAFile) {
  const TempFolder folder;
  write_cifar10(folder);
  const auto error = [&](Split split) { return error_of([&] { load_cifar_folder(folder.str(), split); }); };
  write(folder / "test_batch.bin", {});
  EXPECT_THAT(error(Split::test), AllOf(HasSubstr("test_batch.bin"), HasSubstr("empty")));
  write(folder / "test_batch.bin", Bytes(3072));
  EXPECT_THAT(error(Split::test), AllOf(HasSubstr("3072"), HasSubstr("3073"), HasSubstr("CIFAR-10")));
  write(folder / "test_batch.bin", record({10}, 0));
  EXPECT_THAT(error(Split::test), AllOf(HasSubstr("label 10 of image 0"), HasSubstr("10 classes")));
  std::filesystem::remove(folder / "data_batch_3.bin");
  EXPECT_THAT(error(Split::train), HasSubstr("data_batch_3.bin: no such file"));
}

TEST(Cifar, NamesTheMissingFileOfTheVersion) {
  const TempFolder folder;
  write(folder / "test.bin", record({0, 3}, 0));
  EXPECT_THAT(error_of([&] { load_cifar_folder(folder.str(), Split::train); }), HasSubstr("/train.bin: no such file"));
}

TEST(Layout, RefusesThePythonVersionOfCifar) {
  for (const auto& [name, archive] :
       {std::pair{"data_batch_1", "cifar-10-binary.tar.gz"}, {"train", "cifar-100-binary.tar.gz"}}) {
    const TempFolder folder;
    write(folder / name, {1});
    write(folder / (name == std::string("train") ? "meta" : "batches.meta"), {1});
    EXPECT_THAT(error_of([&] { layout_of(folder.str()); }), AllOf(HasSubstr(name), HasSubstr(archive)));
    write(folder / (std::string(name) + ".bin"), {1});
    EXPECT_EQ(layout_of(folder.str()), Layout::cifar);
  }
}

TEST(Layout, ListsTheExpectedFiles) {
  const TempFolder folder;
  const auto error = [](const std::string& path) { return error_of([&] { layout_of(path); }); };
  write(folder / "notes.txt", {1});
  EXPECT_THAT(error(folder.str()), AllOf(HasSubstr(folder.str()), HasSubstr("train-images-idx3-ubyte"),
                                         HasSubstr("data_batch_1.bin"), HasSubstr("--data"), HasSubstr("apt-get")));
  EXPECT_THAT(error(folder / "none"), AllOf(HasSubstr("not found"), HasSubstr("train.bin")));
  EXPECT_THAT(error(folder / "notes.txt"), HasSubstr("is a file"));
  write(folder / "t10k-labels.idx1-ubyte.gz", {1});
  EXPECT_EQ(layout_of(folder.str()), Layout::idx);
}

TEST(Layout, RefusesTwoDatasetsInOneFolder) {
  const TempFolder folder;
  const auto error = [&] { return error_of([&] { layout_of(folder.str()); }); };
  write(folder / "train/cats/a.jpg", {1});
  write(folder / "train.bin.gz", {1});
  EXPECT_THAT(error(), HasSubstr("has train.bin.gz (CIFAR-100) and class folders (JPEGs); expected one dataset"));
  std::filesystem::remove_all(folder / "train");
  EXPECT_EQ(layout_of(folder.str()), Layout::cifar);
  write(folder / "data_batch_1.bin", {1});
  EXPECT_THAT(error(), HasSubstr("has data_batch_1.bin (CIFAR-10) and train.bin.gz (CIFAR-100)"));
}

// The hash must include every byte used in training.
TEST(ContentHash, DependsOnEveryByteAndLabel) {
  RawImages set{Shape{1, 5, 1}, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {0, 2}};
  const uint64_t hash = content_hash(set);
  for (uint8_t& pixel : set.pixels) {
    ++pixel;
    EXPECT_NE(content_hash(set), hash);
    --pixel;
  }
  set.labels[0] = 1;
  EXPECT_NE(content_hash(set), hash);
  set.labels[0] = 0;
  set.image_shape = Shape{5, 1, 1};
  EXPECT_NE(content_hash(set), hash);
}

}  // namespace cifar_test
}  // namespace godwit::data
