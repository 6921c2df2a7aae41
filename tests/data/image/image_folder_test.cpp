#include "data/image/image_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>

#include "data/image/layout.h"
#include "engine/hash.h"
#include "tests/data/golden.h"

namespace godwit::data {
namespace image_folder_test {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Two classes: three training and two test images.
void write_small(const TempFolder& folder, const std::string& test = "val") {
  write(folder / "train/cat/b.jpg", golden_jpeg("colour"));
  write(folder / "train/cat/a.JPEG", golden_jpeg("grey"));
  write(folder / "train/dog/deep/er/c.jpeg", golden_jpeg("cmyk"));
  write(folder / (test + "/cat/x.jpg"), golden_jpeg("progressive"));
  write(folder / (test + "/dog/y.jpg"), golden_jpeg("large"));
}

std::vector<std::string> paths(const std::vector<ImageFile>& files) {
  std::vector<std::string> result;
  for (const ImageFile& file : files) result.push_back(file.path);
  return result;
}

ImageFolder index(const TempFolder& folder, IndexOptions options = {}) {
  return index_image_folder(folder.str(), options);
}

std::string index_error(const TempFolder& folder) {
  return error_of([&] { index(folder); });
}

// An image whose header claims `width`.
Bytes with_width(int width) {
  Bytes bytes = golden_jpeg("grey");
  const auto frame = find_marker(bytes, 0xc0);
  frame[7] = static_cast<uint8_t>(width >> 8);
  frame[8] = static_cast<uint8_t>(width);
  return bytes;
}

TEST(ImageFolder, ListsClassesAndFilesSorted) {
  const TempFolder folder;
  write_small(folder);
  write(folder / "train/cat/.hidden.jpg", {1});
  write(folder / "train/notes.txt", {1});
  EXPECT_EQ(layout_of(folder.str()), Layout::image_folder);
  const ImageFolder found = index(folder);
  EXPECT_THAT(found.classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(found.train_name, "train");
  EXPECT_EQ(found.test_name, "val");
  EXPECT_THAT(paths(found.train), ElementsAre("train/cat/a.JPEG", "train/cat/b.jpg", "train/dog/deep/er/c.jpeg"));
  EXPECT_THAT(paths(found.test), ElementsAre("val/cat/x.jpg", "val/dog/y.jpg"));
  EXPECT_TRUE(found.skipped.empty());
  EXPECT_EQ(found.train[2].label, 1);
  EXPECT_EQ(found.train[2].channels, 4);
  EXPECT_EQ(found.train[2].width, 134);
  EXPECT_EQ(found.test[1].width, 400);
  EXPECT_EQ(found.test[1].height, 300);
}

TEST(ImageFolder, FoldersOfRunsAreNoClasses) {
  const TempFolder folder;
  write_small(folder);
  const std::string config = "{\n  \"program\": \"train_resnet\"";
  for (const std::string run : {"run", "runs/a", "runs/b", "cat/run"}) {
    write(folder / "train/" + run + "/config.json", Bytes(config.begin(), config.end()));
    write(folder / "train/" + run + "/metrics.jsonl", {1});
  }
  EXPECT_THAT(index(folder).classes, ElementsAre("cat", "dog"));
  EXPECT_TRUE(index(folder).skipped.empty());
  EXPECT_EQ(layout_of(folder / "train"), Layout::image_folder);
  write(folder / "train/runs/notes.txt", {1});
  EXPECT_THAT(index_error(folder), HasSubstr("runs"));
}

TEST(ImageFolder, PrefersValidationAndAcceptsOneSplit) {
  const TempFolder folder;
  write_small(folder, "test");
  EXPECT_EQ(index(folder).test_name, "test");
  fs::copy(folder / "test", folder / "validation", fs::copy_options::recursive);
  const ImageFolder both = index(folder);
  EXPECT_EQ(both.test_name, "validation");
  EXPECT_THAT(both.unused, ElementsAre("test"));

  const TempFolder flat;
  write(flat / "cat/a.jpg", golden_jpeg("colour"));
  write(flat / "dog/b.jpg", golden_jpeg("grey"));
  EXPECT_EQ(layout_of(flat.str()), Layout::image_folder);
  const TempFolder pngs;
  write(pngs / "cat/1.png", {1});
  EXPECT_THAT(error_of([&] { layout_of(pngs.str()); }), HasSubstr("; cat/1.png is no JPEG (*.jpg, *.jpeg)"));
  const TempFolder linked;
  for (const std::string name : {"cat", "dog"}) {
    fs::create_directories(linked / name);
    fs::create_directory_symlink(flat / name, linked / name + "/all");
  }
  EXPECT_EQ(layout_of(linked.str()), Layout::image_folder);
  EXPECT_THAT(paths(index(linked).train), ElementsAre("cat/all/a.jpg", "dog/all/b.jpg"));
  const ImageFolder single = index(flat);
  EXPECT_EQ(single.train_name, single.test_name);
  EXPECT_THAT(paths(single.train), ElementsAre("cat/a.jpg", "dog/b.jpg"));
  EXPECT_THAT(paths(single.test), ElementsAre("cat/a.jpg", "dog/b.jpg"));
}

// ILSVRC's archive has the images of val without class folders.
TEST(ImageFolder, DoesNotReadTheTestImagesIfTheyAreNotNeeded) {
  const TempFolder folder;
  write_small(folder);
  fs::remove_all(folder / "val");
  write(folder / "val/1.jpg", {});
  EXPECT_THAT(index_error(folder), HasSubstr("have different classes"));
  const ImageFolder found = index_image_folder(folder.str(), {.test = false});
  EXPECT_EQ(found.test_name, "train");
  EXPECT_EQ(paths(found.test), paths(found.train));
  EXPECT_TRUE(found.skipped.empty());
}

TEST(ImageFolder, SkipsUnusableFilesWithTheReason) {
  const TempFolder folder;
  write_small(folder);
  const Bytes whole = golden_jpeg("large");
  write(folder / "train/cat/c1.jpg", {});
  write(folder / "train/cat/c2.jpg", {'h', 'e', 'l', 'l', 'o'});
  write(folder / "train/cat/c3.jpg", {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'});
  write(folder / "train/cat/c4.jpg", Bytes(whole.begin(), whole.begin() + 300));
  write(folder / "train/cat/c5.jpg", Bytes(whole.begin(), whole.end() - 2));
  write(folder / "train/cat/c6.jpg", with_width(20000));
  fs::create_symlink("nowhere", folder / "train/cat/c7.jpg");
  ASSERT_EQ(mkfifo((folder / "train/cat/c8.jpg").c_str(), 0600), 0);
  write(folder / "val/dog/d1.jpg", Bytes(whole.begin(), whole.begin() + 9000));
  const ImageFolder found = index(folder);
  EXPECT_EQ(found.train.size(), 3u);
  EXPECT_EQ(found.test.size(), 2u);
  ASSERT_EQ(found.skipped.size(), 9u);
  const std::vector<std::string> why = {"is empty",         "is not an image", "PNG",
                                        "not a readable JPEG", "is truncated", "is 20000x90, more than 16384 on a side",
                                        "No such file",     "regular",      "is truncated"};
  for (size_t i = 0; i < why.size(); ++i)
    EXPECT_THAT(found.skipped[i].problem, HasSubstr(why[i])) << found.skipped[i].path;
  const ImageFolder small = index(folder, {.max_pixels = 134 * 90});
  EXPECT_EQ(small.train.size(), 3u);
  EXPECT_THAT(paths(small.test), ElementsAre("val/cat/x.jpg")) << "400x300 exceeds the limit";
  EXPECT_EQ(small.skipped.back().problem, "is 400x300, more pixels than data.max_pixels=12060");
}

// Data after the end marker, and long comments before the header, are valid.
TEST(ImageFolder, AcceptsUnusualButCompleteFiles) {
  const TempFolder folder;
  write_small(folder);
  Bytes bytes = golden_jpeg("colour");
  bytes.insert(bytes.end(), 10000, 7);
  write(folder / "train/cat/tail.jpg", bytes);
  bytes = golden_jpeg("colour");
  for (int i = 0; i < 3; ++i) {
    Bytes comment(60002, 'x');
    comment[0] = 0xff, comment[1] = 0xfe, comment[2] = 60000 >> 8, comment[3] = 60000 & 255;
    bytes.insert(bytes.begin() + 2, comment.begin(), comment.end());
  }
  write(folder / "train/cat/comment.jpg", bytes);
  const ImageFolder found = index(folder, {.threads = 3});
  EXPECT_EQ(found.train.size(), 5u);
  EXPECT_TRUE(found.skipped.empty());
}

TEST(ImageFolder, NamesTheErrorInAFolder) {
  const TempFolder folder;
  write_small(folder);
  write(folder / "val/emu/z.jpg", golden_jpeg("grey"));
  write(folder / "train/ant/z.jpg", golden_jpeg("grey"));
  EXPECT_THAT(index_error(folder), AllOf(HasSubstr("only in train: ant"), HasSubstr("only in val: emu")));
  fs::remove_all(folder / "val/emu");
  fs::create_directory(folder / "val/ant");
  write(folder / "train/ant/z.jpg", {});
  EXPECT_THAT(index_error(folder), AllOf(HasSubstr("class ant"), HasSubstr("train/ant/z.jpg is empty")));
  fs::remove_all(folder / "train/ant");
  fs::remove_all(folder / "val");
  fs::create_directories(folder / "val/cat");
  fs::create_directories(folder / "val/dog");
  EXPECT_THAT(index_error(folder), AllOf(HasSubstr("val"), HasSubstr("no usable JPEG")));
  fs::remove_all(folder / "val");
  fs::remove_all(folder / "train/dog");
  EXPECT_THAT(index_error(folder), HasSubstr("holds 1 class folder,"));
}

TEST(ImageFolder, FollowsLinksExceptLoops) {
  const TempFolder folder, other;
  write_small(folder);
  write(other / "far.jpg", golden_jpeg("grey"));
  fs::create_directory_symlink(other.str(), folder / "train/dog/link");
  fs::create_directory_symlink("..", folder / "train/cat/loop");
  fs::create_directory_symlink(folder.str(), other / "back");
  fs::create_directory_symlink("/", folder / "train/cat/root");
  EXPECT_THAT(paths(index(folder).train),
              ElementsAre("train/cat/a.JPEG", "train/cat/b.jpg", "train/dog/deep/er/c.jpeg", "train/dog/link/far.jpg"));
}

TEST(ImageFolder, RefusesAFolderForEvaluationBesideTheClasses) {
  for (const std::string name : {"val", "test"}) {
    const TempFolder folder;
    write_small(folder, name);
    for (const std::string image_class : {"cat", "dog"})
      fs::rename(folder / ("train/" + image_class), folder / image_class);
    fs::remove(folder / "train");
    EXPECT_THAT(index_error(folder), AllOf(HasSubstr("has " + name + "/cat and cat, but no train"),
                                           HasSubstr("move the class folders for training to")));
  }
}

TEST(ImageFolder, NamesAFolderThatCannotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everywhere";
  const TempFolder folder;
  write_small(folder);
  fs::permissions(folder / "train/dog", fs::perms::none);
  EXPECT_THAT(index_error(folder), AllOf(HasSubstr("train/dog"), HasSubstr("Permission denied")));
  fs::permissions(folder / "train/dog", fs::perms::owner_all);
  fs::permissions(folder / "train/cat/b.jpg", fs::perms::none);
  EXPECT_THAT(index(folder).skipped.at(0).problem, HasSubstr("Permission denied"));
}

// Earlier versions stored image sizes in this file and trusted them.
TEST(ImageFolder, IgnoresAnIndexOfAnEarlierVersion) {
  const TempFolder folder;
  write_small(folder);
  const ImageFolder found = index(folder);
  std::string text = "godwit-index 1\n";
  for (const auto* files : {&found.train, &found.test})
    for (const ImageFile& file : *files) {
      struct stat status;
      ASSERT_EQ(stat((folder / file.path).c_str(), &status), 0);
      text += detail::concat(file.bytes, ' ', status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
                             " 0 0 3\t\t", file.path, '\n');
    }
  Hash hash;
  hash.add(text);
  text += detail::concat("end 5 ", hash.value(), '\n');
  write(folder / ".godwit-index", Bytes(text.begin(), text.end()));
  const ImageFolder again = index(folder);
  ASSERT_EQ(again.train.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(again.train[i].width, found.train[i].width);
  EXPECT_EQ(read(folder / ".godwit-index"), Bytes(text.begin(), text.end())) << "the file must not be written";
}

// A small progressive image whose header claims width x height, with color at full resolution.
Bytes progressive(int width, int height) {
  Bytes bytes = golden_jpeg("progressive");
  const auto frame = find_marker(bytes, 0xc2);
  frame[5] = static_cast<uint8_t>(height >> 8), frame[6] = static_cast<uint8_t>(height);
  frame[7] = static_cast<uint8_t>(width >> 8), frame[8] = static_cast<uint8_t>(width);
  frame[11] = 0x11;
  return bytes;
}

TEST(ImageFolder, SkipsFilesThatNeedTooMuchMemoryToDecode) {
  const TempFolder folder;
  write_small(folder);
  write(folder / "train/cat/big.jpg", progressive(16000, 4000));
  const ImageFolder found = index(folder);
  ASSERT_THAT(paths(found.skipped), ElementsAre("train/cat/big.jpg"));
  EXPECT_THAT(found.skipped[0].problem, AllOf(HasSubstr("takes 367 MiB"), HasSubstr("data.decode_mib=256")));
  EXPECT_EQ(index(folder, {.most_decode_bytes = int64_t{400} << 20}).train.size(), 4u);
}

}  // namespace image_folder_test
}  // namespace godwit::data
