#include "data/image/raw_images.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "data/image/idx.h"
#include "engine/check.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstallOrName =
    "; install the package of Fashion-MNIST (apt-get install dataset-fashion-mnist) or name a folder of IDX files with "
    "--data FOLDER";

// Finds a file such as train-images-idx3-ubyte, with "-" or ".", with or without .gz.
std::string find_file(const std::string& folder, const std::string& stem, const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = fs::path(folder) / (stem + separator + kind + ending);
      std::error_code error;
      const bool found = fs::exists(path, error);
      check(!error, path.string(), ": cannot be read (", error.message(), ")");
      if (found) return path.string();
    }
  fail("data folder ", folder, ": holds neither ", stem, "-", kind, "[.gz] nor ", stem, ".", kind, "[.gz]",
       kInstallOrName);
}

Idx read_labels(const std::string& path) {
  Idx labels = read_idx(path);
  check(labels.extents.size() == 1, path, ": has ", labels.extents.size(), " dimensions, expected one for labels");
  check(!labels.values.empty(), path, ": holds no labels");
  return labels;
}

}  // namespace

std::string default_data_folder() { return "/usr/share/datasets/fashion-mnist"; }

RawImages load_idx_folder(const std::string& folder, Split split) {
  std::error_code error;
  const bool found = fs::exists(folder, error);
  check(!error, "data folder ", folder, ": cannot be read (", error.message(), ")");
  check(found, "data folder ", folder, ": not found, looked for train-images-idx3-ubyte[.gz], ",
        "train-labels-idx1-ubyte[.gz] and the t10k files", kInstallOrName);
  check(fs::is_directory(folder, error), "data folder ", folder, ": is a file, expected a folder of IDX files");
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const std::string image_path = find_file(folder, prefix + "-images", "idx3-ubyte");
  const std::string label_path = find_file(folder, prefix + "-labels", "idx1-ubyte");
  const std::string train_path = find_file(folder, "train-labels", "idx1-ubyte");

  const Idx labels = read_labels(label_path);
  Idx images = read_idx(image_path);
  const auto& extents = images.extents;
  check(extents.size() == 3 || extents.size() == 4, image_path, ": has ", extents.size(),
        " dimensions, expected three [n, h, w] or four [n, h, w, c] for images");
  check(extents[0] == labels.extents[0], image_path, ": has ", extents[0], " images, but ", label_path, " has ",
        labels.extents[0], " labels");
  check(!images.values.empty(), image_path, ": the images have no pixels");

  RawImages dataset;
  dataset.image_shape = Shape{extents[1], extents[2], extents.size() == 4 ? extents[3] : 1};
  dataset.pixels = std::move(images.values);
  dataset.labels.assign(labels.values.begin(), labels.values.end());
  const Idx train = split == Split::train ? labels : read_labels(train_path);
  dataset.classes = 1 + *std::max_element(train.values.begin(), train.values.end());
  check(dataset.classes >= 2, train_path, ": all labels are 0; a classifier needs at least two classes");
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int32_t label = dataset.labels[static_cast<size_t>(i)];
    check(label < dataset.classes, label_path, ": label ", label, " of image ", i, " is not among the ",
          dataset.classes, " classes of ", train_path);
  }
  return dataset;
}

ChannelStats channel_stats(const RawImages& dataset) {
  const auto channels = static_cast<size_t>(dataset.image_shape[2]);
  check(!dataset.pixels.empty(), "channel statistics: the dataset is empty");
  std::vector<uint64_t> sum(channels), squares(channels);
  for (size_t i = 0, c = 0; i < dataset.pixels.size(); ++i) {
    const uint64_t x = dataset.pixels[i];
    sum[c] += x;
    squares[c] += x * x;
    if (++c == channels) c = 0;
  }
  ChannelStats stats;
  const double count = static_cast<double>(dataset.pixels.size() / channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sum[c]) / count;
    const double variance = std::max(0.0, static_cast<double>(squares[c]) / count - mean * mean);
    stats.mean.push_back(static_cast<float>(mean / 255));
    stats.std.push_back(static_cast<float>(std::sqrt(variance) / 255));
  }
  return stats;
}

uint64_t content_hash(const RawImages& dataset) {
  Hash hash;
  for (int i = 0; i < dataset.image_shape.rank(); ++i) hash.add(static_cast<uint64_t>(dataset.image_shape[i]));
  hash.add(static_cast<uint64_t>(dataset.classes));
  for (const int32_t label : dataset.labels) hash.add(static_cast<uint64_t>(label));
  for (size_t i = 0; i < dataset.pixels.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, dataset.pixels.data() + i, std::min(sizeof word, dataset.pixels.size() - i));
    hash.add(word);
  }
  return hash.value();
}

}  // namespace godwit::data
