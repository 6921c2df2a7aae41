#include "apps/image/image_data.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "data/hold_out.h"
#include "data/image/cifar.h"
#include "data/image/image_folder.h"
#include "data/image/image_folder_dataset.h"
#include "data/image/layout.h"
#include "engine/check.h"
#include "engine/context.h"
#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

std::vector<float> floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

data::RawImages hold_out(data::RawImages& train, int64_t every) {
  data::RawImages held;
  held.image_shape = train.image_shape;
  held.classes = train.classes;
  held.pixels = data::hold_out(train.pixels, every, train.image_shape.numel());
  held.labels = data::hold_out(train.labels, every);
  return held;
}

// "10 classes", followed by the numbers of classes without an image for training or evaluation.
std::string classes_text(int64_t classes, const std::vector<int32_t>& train, const std::vector<int32_t>& test) {
  std::string text = std::to_string(classes) + " classes";
  for (const auto& [labels, what] : {std::pair{&train, "a training"}, {&test, "an evaluation"}}) {
    const int64_t absent = classes - std::ssize(std::set<int32_t>(labels->begin(), labels->end()));
    if (absent > 0) text += ", " + std::to_string(absent) + " of them without " + what + " image";
  }
  return text;
}

std::vector<int32_t> labels_of(const std::vector<data::ImageFile>& files) {
  std::vector<int32_t> labels;
  for (const data::ImageFile& file : files) labels.push_back(file.label);
  return labels;
}

ImageData load_into_memory(const ImageConfig& config, const std::string& folder, data::Layout layout) {
  const ImageDataConfig& options = config.data;
  const ImageDataConfig usual;
  check(options.crop == 0 && options.resize == 0 && options.color_jitter == 0, "data folder ", folder,
        ": data.crop, data.resize and data.color_jitter apply to folders of JPEGs only; images in "
        "memory are cropped with data.pad");
  check(options.max_pixels == usual.max_pixels && options.decode_mib == usual.decode_mib && !options.strict,
        "data folder ", folder,
        ": data.max_pixels, data.decode_mib and --strict apply to folders of JPEGs only; leave them out");
  const auto load = layout == data::Layout::cifar ? data::load_cifar_folder : data::load_idx_folder;
  data::RawImages train = load(folder, data::Split::train), test;
  if (config.validation > 0) test = hold_out(train, config.validation);
  else test = load(folder, data::Split::test);
  check(train.image_shape == test.image_shape, "data folder ", folder, ": training images are ", train.image_shape,
        " (height, width, channels), test images ", test.image_shape);
  const data::ChannelStats stats = data::channel_stats(train);
  for (size_t c = 0; c < stats.std.size(); ++c)
    check(stats.std[c] > 0, "data folder ", folder, ": all training pixels of channel ", c, " are equal");
  for (const auto& [key, size] : {std::pair{"data.mean", options.mean.size()}, {"data.std", options.std.size()}})
    check(size == 0 || size == stats.mean.size(), key, " has ", size, " values, but the images of ", folder, " have ",
          stats.mean.size(), stats.mean.size() == 1 ? " channel" : " channels");
  data::TransformOptions transform{.mean = options.mean.empty() ? stats.mean : floats(options.mean),
                                   .std = options.std.empty() ? stats.std : floats(options.std),
                                   .pad = options.pad,
                                   .flip = options.flip,
                                   .seed = config.seed};
  ImageData images;
  images.notes.push_back({"images", classes_text(train.classes, train.labels, test.labels) + "; training: " +
                                        std::to_string(train.size()) + "; evaluation: " + std::to_string(test.size())});
  images.train = std::make_shared<data::InMemoryDataset>(std::move(train), transform);
  images.test = std::make_shared<data::InMemoryDataset>(std::move(test), transform);
  return images;
}

std::string split_text(const data::ImageFolder& folder) {
  const auto part = [](size_t count, const std::string& name) {
    return std::to_string(count) + (name.empty() ? " in the class folders" : " in " + name);
  };
  std::string text = classes_text(std::ssize(folder.classes), labels_of(folder.train), labels_of(folder.test)) +
                     "; training: " + part(folder.train.size(), folder.train_name) + "; evaluation: ";
  text += folder.test_name == folder.train_name ? "same images (no val, validation or test folder)"
                                                : part(folder.test.size(), folder.test_name);
  for (const std::string& name : folder.unused) text += "; " + name + " is not read";
  return text;
}

constexpr size_t kShownFiles = 5;  // skipped files listed at the start of a run

std::string skipped_text(const data::ImageFolder& folder) {
  const size_t used = folder.train.size() + (folder.test_name == folder.train_name ? 0 : folder.test.size());
  const size_t skipped = folder.skipped.size();
  std::string text = std::to_string(skipped) + " of " + std::to_string(used + skipped) + " files: ";
  for (size_t i = 0; i < std::min(skipped, kShownFiles); ++i)
    text += (i ? "; " : "") + excerpt(folder.skipped[i].path) + " " + folder.skipped[i].problem;
  return text + (skipped > kShownFiles ? "; and " + std::to_string(skipped - kShownFiles) + " more" : "");
}

std::vector<std::string> skipped_lines(const data::ImageFolder& folder) {
  std::vector<std::string> lines;
  for (const data::ImageFile& file : folder.skipped) lines.push_back(printable(file.path) + ": " + file.problem);
  return lines;
}

ImageData load_image_folder(const ImageConfig& config, const std::string& root, Progress* progress) {
  const ImageDataConfig& options = config.data;
  check(options.pad == 0, "data folder ", root, ": data.pad applies to images in memory only; JPEGs are cropped ",
        "at random and resized to data.crop");
  data::IndexOptions index;
  index.max_pixels = options.max_pixels;
  index.most_decode_bytes = options.decode_mib << 20;
  index.threads = hardware_threads() + 2;  // more than the cores, because some threads wait for the disk
  index.test = config.validation == 0;
  index.progress = reporter(progress, "indexing the files of " + root);
  data::ImageFolder folder = data::index_image_folder(root, index);
  check(!options.strict || folder.skipped.empty(), "data folder ", root, ": cannot use ", skipped_text(folder),
        " (--strict)");

  if (config.validation > 0) {
    folder.test = data::hold_out(folder.train, config.validation);
    folder.test_name = "one in " + std::to_string(config.validation) + " training images";
  }
  data::PhotoOptions photo;
  photo.crop = options.crop > 0 ? options.crop : photo.crop;
  photo.resize = options.resize > 0 ? options.resize : (photo.crop * 8 + 3) / 7;
  photo.flip = options.flip;
  photo.color_jitter = options.color_jitter;
  if (!options.mean.empty()) photo.mean = floats(options.mean);
  if (!options.std.empty()) photo.std = floats(options.std);
  photo.seed = config.seed;
  photo.strict = options.strict;
  photo.most_decode_bytes = options.decode_mib << 20;
  ImageData images;
  images.notes.push_back({"images", split_text(folder)});
  const char* all = folder.skipped.size() > kShownFiles ? " (full list: skipped.txt in the run directory)" : "";
  if (!folder.skipped.empty()) images.notes.push_back({"skipped", skipped_text(folder) + all});
  images.skipped = skipped_lines(folder);
  images.train = std::make_shared<data::ImageFolderDataset>(root, folder.classes, std::move(folder.train), photo);
  images.test = std::make_shared<data::ImageFolderDataset>(root, folder.classes, std::move(folder.test), photo);
  return images;
}

}  // namespace

ImageData load_image_data(const ImageConfig& config, Progress* progress) {
  const std::string folder = config.data.path.empty() ? data::default_data_folder() : config.data.path;
  const data::Layout layout = data::layout_of(folder);
  return layout == data::Layout::image_folder ? load_image_folder(config, folder, progress)
                                              : load_into_memory(config, folder, layout);
}

void write_skipped(const ImageData& data, const std::string& run_dir) {
  const std::string path = run_dir + "/skipped.txt";
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // of the run before a resume
  if (data.skipped.empty()) return;
  std::ofstream out(path, std::ios::binary);
  for (const std::string& line : data.skipped) out << line << '\n';
  out.close();
  check(bool(out), path, ": cannot be written (", std::strerror(errno), "); choose another --run-dir");
}

}  // namespace godwit::apps
