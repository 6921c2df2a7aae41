// ImageDataset: labeled images for a loader. Each image can be read separately, as normalized floats.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/image/raw_images.h"
#include "data/image/transform.h"

namespace godwit::data {

// All functions are thread-safe.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;
  virtual int64_t size() const = 0;       // number of images
  virtual int64_t classes() const = 0;    // number of classes
  virtual Shape image_shape() const = 0;  // [h, w, c] of the output
  virtual uint64_t hash() const = 0;      // hash of the contents or of the file list; equal on ranks with the same data

  // Both functions return the label. read_augmented() applies a random change that depends only on (seed, epoch,
  // sample).
  virtual int32_t read(int64_t sample, float* to) const = 0;
  virtual int32_t read_augmented(int64_t sample, int64_t epoch, float* to) const = 0;  // like read(), with augmentation

  // One line per sample that could not be read correctly, ordered by sample.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// Images in memory. They are normalized, and randomly cropped and flipped.
class InMemoryDataset : public ImageDataset {
 public:
  // For mean, standard deviation, crop and flip, see TransformOptions. Throws if the number of pixels does not fit the
  // labels, or if a label is not a class.
  InMemoryDataset(RawImages dataset, TransformOptions options);

  int64_t size() const override { return dataset_.size(); }
  int64_t classes() const override { return dataset_.classes; }
  Shape image_shape() const override { return dataset_.image_shape; }
  uint64_t hash() const override { return hash_; }
  int32_t read(int64_t sample, float* to) const override;
  int32_t read_augmented(int64_t sample, int64_t epoch, float* to) const override;

 private:
  RawImages dataset_;
  Transform transform_;
  uint64_t hash_;
};

}  // namespace godwit::data
