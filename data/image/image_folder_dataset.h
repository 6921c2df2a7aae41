// ImageFolderDataset: photographs that are read, decoded, cropped, resized and normalized on demand.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "data/image/image_folder.h"
#include "data/image/image_dataset.h"
#include "data/image/resample.h"

namespace godwit::data {

// Size, augmentation and normalization of the images.
struct PhotoOptions {
  int64_t crop = 224;       // side of the square output images
  int64_t resize = 256;     // evaluation: length of the short side before the center crop, at least `crop`
  bool flip = true;         // training: flip half of the samples horizontally
  double color_jitter = 0;  // training: strength of random brightness, contrast and saturation; 0: no color changes
  std::vector<float> mean = {0.485f, 0.456f, 0.406f}, std = {0.229f, 0.224f, 0.225f};  // values of ImageNet
  uint64_t seed = 0;
  bool strict = false;                       // throw an error for a corrupt file
  int64_t most_decode_bytes = kDecodeBytes;  // skips images whose coefficients need more memory
};

// A file with corrupt image data yields the decodable part. A file with a valid header that cannot be decoded at all is
// replaced by the next decodable file, identically on all ranks. An unreadable file throws an Error.
class ImageFolderDataset : public ImageDataset {
 public:
  // `files`: the files of one split of `root`.
  ImageFolderDataset(std::string root, std::vector<std::string> classes, std::vector<ImageFile> files,
                     PhotoOptions options);

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  int64_t classes() const override { return static_cast<int64_t>(classes_.size()); }
  Shape image_shape() const override { return {options_.crop, options_.crop, 3}; }
  uint64_t hash() const override { return hash_; }
  int32_t read(int64_t sample, float* to) const override;
  int32_t read_augmented(int64_t sample, int64_t epoch, float* to) const override;
  std::vector<std::string> warnings() const override;

 private:
  template <class Draw>
  int32_t first_readable(int64_t sample, const Draw& draw) const;
  bool decode(int64_t sample, const Box& box, const Rect& window, bool flip, float* to) const;
  void note(int64_t sample, const std::string& text) const;
  void normalize(float* to) const;

  std::string root_;
  std::vector<std::string> classes_;
  std::vector<ImageFile> files_;
  PhotoOptions options_;
  uint64_t hash_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::string> warnings_;
};

}  // namespace godwit::data
