// train_resnet with the data that it accepts and refuses.
#include <filesystem>

#include "tests/apps/small_data.h"
#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace train_resnet_data_test {

namespace fs = std::filesystem;
using ::testing::AllOf, ::testing::HasSubstr;

TEST_F(TrainResnet, PrintsTheNumbersOfClassesAndImages) {
  std::string labels = read_file(folder_ / "data/train-labels-idx1-ubyte");
  EXPECT_NE(done("--max-steps 1").out.find("4 classes; training: 256; evaluation: 50\n"), std::string::npos);
  EXPECT_NE(done("--max-steps 1 --set validation=4").out.find("4 classes; training: 192; evaluation: 64\n"),
            std::string::npos);
  for (size_t i = 8; i < labels.size(); ++i) labels[i] = static_cast<char>(labels[i] + 5);
  write_file(folder_ / "data/train-labels-idx1-ubyte", labels);
  EXPECT_NE(done("--max-steps 1").out.find("9 classes, 5 of them without a training image, 5 of them "
                                           "without an evaluation image; training: 256;"),
            std::string::npos);
}

TEST_F(TrainResnet, RefusesCorruptData) {
  const fs::path images = folder_ / "data" / "train-images-idx3-ubyte";
  const std::string whole = read_file(images);
  write_file(images, whole.substr(0, whole.size() - 10));
  expect_refused("--nodes 2", {"train-images-idx3-ubyte"});
  write_file(images, "not an IDX file at all");
  expect_refused("--nodes 2", {"train-images-idx3-ubyte"});
  write_images(folder_ / "data", "train", 256, 255);
  expect_refused("--nodes 2", {"256", "255"});
  write_images(folder_ / "data", "train", 256, 256, 16);
  expect_refused("--nodes 2", {"[4, 16, 1]", "[8, 8, 1]", "data"});
  write_images(folder_ / "data", "train", 256, 256);
  expect_refused("--model resnet50 --batch 4", {"resnet50", "32", "8", "small_stem"});
  write_file(images, whole.substr(0, 16) + std::string(256 * 64, '\7'));
  expect_refused("--nodes 2", {"data", "equal"});
  write_file(folder_ / "data" / "train-labels-idx1-ubyte",
             big_endian(0x801) + big_endian(256) + std::string(256, '\0'));
  expect_refused("--nodes 2", {"train-labels-idx1-ubyte", "classes"});
}

// Two classes of JPEGs; each split has one unusable file.
TEST_F(TrainResnet, TrainsOnFoldersOfJpegs) {
  const fs::path golden = GODWIT_SOURCE_DIR "/tests/data/golden", photos = folder_ / "photos";
  for (const char* split : {"train", "validation"})
    for (const char* name : {"cat", "dog"}) {
      fs::create_directories(photos / split / name);
      for (const char* file : {"colour.jpg", "cmyk.jpg", "grey.jpg", "large.jpg"})
        fs::copy_file(golden / file, photos / split / name / file);
    }
  write_file(photos / "train" / "cat" / "empty.jpg", "");
  const std::string large = read_file(golden / "large.jpg");
  write_file(photos / "validation" / "dog" / "cut.jpg", large.substr(0, large.size() / 2));
  const std::string flags = "--data photos --batch 2 --nodes 2 --set data.crop=16 --set log_every=1";
  const Outcome outcome = train(flags);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text : {"2 classes; training: 8 in train; evaluation: 8 in validation", "2 of 18 files",
                           "train/cat/empty.jpg is empty", "validation/dog/cut.jpg is truncated"})
    EXPECT_THAT(outcome.out, HasSubstr(text)) << text << " is not in ";
  const std::string listed = "train/cat/empty.jpg: is empty\n", cut = "validation/dog/cut.jpg: is truncated\n";
  EXPECT_EQ(read_file(run_dir() / "skipped.txt"), listed + cut);
  const std::string first = losses(metrics());
  EXPECT_TRUE(metrics().front().contains("data_wait_s"));
  fs::remove_all(run_dir());
  ASSERT_EQ(train(flags + " --set data.workers=3 --set data.prefetch=5").exit_code, 0);
  EXPECT_EQ(losses(metrics()), first) << "the index and the number of workers must not change a bit";
  fs::remove_all(run_dir());

  expect_refused(flags + " --strict", {"photos", "empty.jpg", "cut.jpg", "--strict"});
  expect_refused(flags + " --set data.pad=2", {"photos", "data.pad"});
  expect_refused("--set data.crop=8", {"data", "data.crop"});
  expect_refused("--set data.std=0.5,0.5,0.5", {"data.std has 3 values", "1 channel\n"});
  expect_refused("--data photos --batch 2 --set data.crop=2", {"4×4", "2×2; raise data.crop to 4\n"});
  expect_refused("--data photos --batch 2 --set data.crop=24 --model resnet18", {"24×24; raise data.crop to 32\n"});
  std::string more;
  for (const std::string name : {"a", "b", "c", "d"}) {
    write_file(photos / "train" / "dog" / (name + ".jpg"), "");
    more += "train/dog/" + name + ".jpg: is empty\n";
  }
  EXPECT_NE(train(flags + " --max-steps 1").out.find("d.jpg is empty; and 1 more (full list"), std::string::npos);
  EXPECT_EQ(read_file(run_dir() / "skipped.txt"), listed + more + cut);
  fs::remove_all(run_dir());
  fs::create_directory(photos / "train" / "emu");
  expect_refused(flags, {"photos", "only in train: emu"});
  fs::remove(photos / "train" / "emu");
  fs::remove_all(run_dir());
  EXPECT_THAT(
      done("--data photos --batch 2 --set data.crop=16 --max-steps 1 --set validation=4").out,
      AllOf(HasSubstr("training: 6 in train; evaluation: 2 in one in 4 training images"), HasSubstr("5 of 13 files")));
  fs::remove_all(photos / "validation" / "dog");
  fs::create_directory(photos / "validation" / "dog");
  EXPECT_THAT(done(flags + " --max-steps 1").out,
              HasSubstr("2 classes, 1 of them without an evaluation image; training: 8 in train; evaluation: 4 in"));
  fs::remove(photos / "train" / "cat" / "empty.jpg");
  for (const char* name : {"a.jpg", "b.jpg", "c.jpg", "d.jpg"}) fs::remove(photos / "train" / "dog" / name);
  EXPECT_TRUE(fs::exists(run_dir() / "skipped.txt"));
  const Outcome resumed = train("--max-steps 2", "--resume run");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_FALSE(fs::exists(run_dir() / "skipped.txt")) << "all images can be used now";
}

}  // namespace train_resnet_data_test
}  // namespace godwit
