// Image files: IDX, CIFAR, JPEG, folders of JPEGs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "data/image/cifar.h"
#include "data/image/idx.h"
#include "data/image/image_folder_dataset.h"
#include "data/image/jpeg.h"
#include "data/image/raw_images.h"
#include "tests/fuzz/target.h"

namespace godwit::fuzz {
namespace {

using namespace data;

constexpr int64_t kMostPixels = 1 << 14;  // of decoded images; larger ones only take longer

void check_images(const RawImages& images) {
  require(std::ssize(images.pixels) == images.size() * images.image_shape.numel(), "every image has its pixels");
  for (const int32_t label : images.labels) require(label >= 0 && label < images.classes, "labels are classes");
  for (const float mean : channel_stats(images).mean) require(mean >= 0 && mean <= 1, "means are in [0, 1]");
}

void idx(Input input) {
  const Idx idx = read_idx(file_of(input));
  int64_t rest = std::ssize(idx.values);  // divided by the extents; their product may overflow if one is 0
  for (const int64_t extent : idx.extents) rest = extent > 0 && rest % extent == 0 ? rest / extent : 0;
  require(rest == !idx.values.empty(), "as many values as the extents say");
}

// The first byte is the size of the file of labels.
void idx_folder(Input input) {
  file_of(input.first(input.byte()), "train-labels-idx1-ubyte");
  file_of(input, "train-images-idx3-ubyte");
  check_images(load_idx_folder(folder(), Split::train));
}

// The first byte chooses CIFAR-10 or CIFAR-100.
void cifar(Input input) {
  const bool fine = input.byte() % 2 == 1;
  const std::string of100 = file_of({}, "train.bin");
  if (!fine) std::filesystem::remove(of100);
  file_of(input, fine ? "test.bin" : "test_batch.bin");
  check_images(load_cifar_folder(folder(), Split::test));
}

// Whether the pixels of `part` are those of `full`.
bool agree(const Pixels& part, const Pixels& full) {
  for (int64_t y = 0; y < part.part.height; ++y) {
    const uint8_t* from = full.rgb.data() + ((part.part.top + y) * full.part.width + part.part.left) * 3;
    if (std::memcmp(from, part.rgb.data() + y * part.part.width * 3, static_cast<size_t>(part.part.width) * 3) != 0)
      return false;
  }
  return true;
}

void jpeg(Input input) {
  const auto bytes = input.bytes;
  const JpegHeader header = read_jpeg_header(bytes);
  require(header.width > 0 && header.height > 0, "an image has pixels");
  require(header.data_from > 0 && header.data_from <= std::ssize(bytes), "the data begin in the file");
  has_jpeg_end(bytes.subspan(static_cast<size_t>(header.data_from)));
  try {  // image folders are indexed by the beginnings of files
    const JpegHeader same = read_jpeg_header(bytes.first(bytes.size() / 2));
    require(same.width == header.width && same.height == header.height && same.data_from == header.data_from,
            "the beginning of a file has the same header");
  } catch (const DecodeError&) {  // a part of the header
  }
  if (header.width * header.height > kMostPixels) return;
  for (const int scale : {1, 2, 4, 8}) {
    const Pixels full = decode_jpeg(bytes, {0, 0, header.width, header.height}, scale, 1 << 20);
    require(std::ssize(full.rgb) == full.part.width * full.part.height * 3, "three bytes per pixel");
    const Rect middle{header.width / 3, header.height / 4, (header.width + 2) / 3, (header.height + 1) / 2};
    const Pixels part = decode_jpeg(bytes, middle, scale, 1 << 20);
    if (!full.damaged && !part.damaged) require(agree(part, full), "a window has the pixels of the image");
  }
}

// Two classes with the same image.
void image_folder(Input input) {
  namespace fs = std::filesystem;
  const std::string root = path_of("photos");
  if (fs::create_directories(root + "/a")) fs::create_symlink("a", root + "/b");
  file_of(input, "photos/a/1.jpg");
  const ImageFolder found = index_image_folder(root, {.max_pixels = kMostPixels, .most_decode_bytes = 1 << 20});
  const ImageFolderDataset dataset(root, found.classes, found.train, {.crop = 8, .resize = 9, .color_jitter = 0.5});
  std::vector<float> values(8 * 8 * 3);
  require(dataset.read(0, values.data()) == 0, "the first image is of the first class");
  dataset.read_augmented(1, 1, values.data());
  require(std::ranges::all_of(values, [](float x) { return std::isfinite(x); }), "pixels are finite");
}

}  // namespace

std::vector<Target> image_targets() {
  return {{"idx", idx}, {"idx_folder", idx_folder}, {"cifar", cifar}, {"jpeg", jpeg}, {"image_folder", image_folder}};
}

}  // namespace godwit::fuzz
