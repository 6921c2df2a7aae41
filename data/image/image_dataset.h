// What a loader draws from: labelled images that can be written, one by one, as normalised floats.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/image/raw_images.h"
#include "data/image/transform.h"

namespace godwit::data {

// Every function may be called from several threads at once.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual Shape image_shape() const = 0;  // [h, w, c] of what is written
  virtual uint64_t hash() const = 0;      // of the content or, for files, of their list: equal on ranks that agree

  // Both return the label. read_augmented: changed as drawn for (seed, epoch, sample), whichever rank or thread asks.
  virtual int32_t read(int64_t sample, float* to) const = 0;
  virtual int32_t read_augmented(int64_t sample, int64_t epoch, float* to) const = 0;

  // Lines about samples that could not be read as they should, in the order of the samples.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// Images held in memory, normalised, padded and cropped, flipped.
class InMemoryDataset : public ImageDataset {
 public:
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
