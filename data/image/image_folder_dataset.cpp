#include "data/image/image_folder_dataset.h"

#include <cmath>
#include <utility>

#include "data/image/augment.h"
#include "data/file.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

uint64_t hash_of(const std::vector<std::string>& classes, const std::vector<ImageFile>& files) {
  Hash hash;
  for (const std::string& name : classes) hash.add(name);
  for (const ImageFile& file : files) {
    hash.add(file.path);
    hash.add(static_cast<uint64_t>(file.label));
    hash.add(static_cast<uint64_t>(file.bytes));
    hash.add(static_cast<uint64_t>(file.width) << 32 | static_cast<uint64_t>(file.height));
  }
  return hash.value();
}

// The largest reduction that leaves the box at least as large as the target.
int scale_for(const Box& box, int64_t target) {
  for (const int scale : {8, 4, 2})
    if (std::min(box.width, box.height) >= static_cast<double>(target * scale)) return scale;
  return 1;
}

}  // namespace

ImageFolderDataset::ImageFolderDataset(std::string root, std::vector<std::string> classes, std::vector<ImageFile> files,
                           PhotoOptions options)
    : root_(std::move(root)),
      classes_(std::move(classes)),
      files_(std::move(files)),
      options_(std::move(options)),
      hash_(hash_of(classes_, files_)) {
  const auto& [crop, resize, flip, jitter, mean, std, seed, strict, most_decode_bytes] = options_;
  check(crop >= 1 && resize >= crop, "image folder: resize ", resize, " and crop ", crop,
        ", expected resize ≥ crop ≥ 1");
  check(mean.size() == 3 && std.size() == 3, "image folder: ", mean.size(), " means and ", std.size(),
        " standard deviations, expected three each (red, green, blue)");
  for (size_t c = 0; c < 3; ++c)
    check(std::isfinite(mean[c]) && std::isfinite(std[c]) && std[c] > 0, "image folder: mean ", mean[c],
          " and standard deviation ", std[c], ", expected finite and positive");
}

int32_t ImageFolderDataset::read(int64_t sample, float* to) const {
  return first_readable(sample, [&](int64_t i) {
    const ImageFile& file = files_[static_cast<size_t>(i)];
    const Box box = center_box(file.width, file.height, options_.resize, options_.crop);
    const Rect window = resample_window(box, file.width, file.height, options_.crop, options_.crop);
    const bool damaged = decode(i, box, window, false, to);
    normalize(to);
    return damaged;
  });
}

int32_t ImageFolderDataset::read_augmented(int64_t sample, int64_t epoch, float* to) const {
  return first_readable(sample, [&](int64_t i) {
    RandomStream random(options_.seed, Purpose::augment, static_cast<uint32_t>(epoch), static_cast<uint32_t>(sample));
    const ImageFile& file = files_[static_cast<size_t>(i)];
    const Rect crop = random_resized_crop(file.width, file.height, random);
    const Box box{static_cast<double>(crop.left), static_cast<double>(crop.top), static_cast<double>(crop.width),
                  static_cast<double>(crop.height)};
    const bool flip = options_.flip && (random.next() >> 31);
    const bool damaged = decode(i, box, crop, flip, to);
    if (options_.color_jitter > 0) color_jitter(to, options_.crop * options_.crop, options_.color_jitter, random);
    normalize(to);
    return damaged;
  });
}

// draw(i) produces the image of file i and returns whether the file is corrupt; throws if nothing can be decoded.
template <class Draw>
int32_t ImageFolderDataset::first_readable(int64_t sample, const Draw& draw) const {
  for (int64_t tried = 0; tried < size(); ++tried) {
    const int64_t i = (sample + tried) % size();
    const ImageFile& file = files_[static_cast<size_t>(i)];
    bool corrupt = false;
    try {
      corrupt = draw(i);
    } catch (const DecodeError& error) {
      check(!options_.strict, file.path, ": ", error.what(), " (--strict)");
      note(i, std::string(error.what()) + "; the next file is used instead");
      continue;
    }
    check(!corrupt || !options_.strict, file.path, ": is corrupt (--strict)");
    if (corrupt) note(i, "is corrupt; the decodable part is used");
    return file.label;
  }
  fail("data folder ", root_, ": no image can be decoded");
}

bool ImageFolderDataset::decode(int64_t sample, const Box& box, const Rect& window, bool flip, float* to) const {
  const ImageFile& file = files_[static_cast<size_t>(sample)];
  const std::vector<uint8_t> bytes = read_file(root_ + "/" + file.path, "an image");
  check(static_cast<int64_t>(bytes.size()) == file.bytes, root_, "/", file.path, ": has ", bytes.size(),
        " bytes, but had ", file.bytes, " when training began; files must not change during a run");
  const Pixels pixels = decode_jpeg(bytes, window, scale_for(box, options_.crop), options_.most_decode_bytes);
  resample(pixels, box, flip, options_.crop, options_.crop, to);
  return pixels.damaged;
}

void ImageFolderDataset::note(int64_t sample, const std::string& text) const {
  const std::lock_guard lock(mutex_);
  warnings_.emplace(sample, text);
}

std::vector<std::string> ImageFolderDataset::warnings() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [sample, text] : warnings_)
    lines.push_back(printable(files_[static_cast<size_t>(sample)].path) + ": " + text);
  return lines;
}

void ImageFolderDataset::normalize(float* to) const {
  float factor[3], offset[3];
  for (size_t c = 0; c < 3; ++c) {
    factor[c] = 1 / (255 * options_.std[c]);
    offset[c] = -options_.mean[c] / options_.std[c];
  }
  for (int64_t i = 0; i < options_.crop * options_.crop; ++i, to += 3)
    for (int c = 0; c < 3; ++c) to[c] = to[c] * factor[c] + offset[c];
}

}  // namespace godwit::data
