// Reads, decodes, crops and normalizes the JPEGs of a folder on one thread. Reports images per second of CPU time.
#include <cstdio>
#include <string>
#include <vector>

#include "bench/program.h"
#include "bench/texts.h"
#include "data/image/image_folder_dataset.h"
#include "engine/check.h"

using namespace godwit;

namespace {

void run(const std::string& root, int64_t crop, int rounds) {
  data::ImageFolder folder = data::index_image_folder(root, {});
  const data::ImageFolderDataset source(root, folder.classes, folder.train,
                                        {.crop = crop, .resize = (crop * 8 + 3) / 7});
  std::vector<float> image(static_cast<size_t>(source.image_shape().numel()));
  for (int64_t i = 0; i < source.size(); ++i) {
    check(source.read(i, image.data()) == folder.train[static_cast<size_t>(i)].label, "image ", i, ": wrong label");
    for (float x : image) check(x > -3 && x < 3, "image ", i, ": value ", x, ", expected above -3 and below 3");
  }
  for (int round = 0; round < rounds; ++round) {
    const double start = bench::thread_seconds();
    for (int64_t i = 0; i < source.size(); ++i) source.read_augmented(i, round, image.data());
    const double between = bench::thread_seconds();
    for (int64_t i = 0; i < source.size(); ++i) source.read(i, image.data());
    const auto count = static_cast<double>(source.size());
    std::printf("training %.1f evaluation %.1f images/s of one thread's time\n", count / (between - start),
                count / (bench::thread_seconds() - between));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_decode FOLDER [CROP] [ROUNDS]\n"
      "Reads, decodes, crops and normalizes the JPEGs of a folder on one thread.\n"
      "CROP: pixels of a side (224)   ROUNDS: passes over the folder (3)";
  return bench::run_program(argc, argv, usage, [&] {
    check(argc >= 2 && argc <= 4, usage);
    run(argv[1], argc > 2 ? static_cast<int>(bench::whole_number(argv[2], "CROP")) : 224,
        argc > 3 ? static_cast<int>(bench::whole_number(argv[3], "ROUNDS")) : 3);
  });
}
