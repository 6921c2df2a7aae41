// From bytes to normalised floats, with the augmentation of small-image training: pad and random crop, random flip.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "engine/shape.h"

namespace godwit::data {

struct TransformOptions {
  std::vector<float> mean = {}, std = {};  // per channel, of values in [0, 1]; both empty: 0 and 1
  int64_t pad = 0;    // zero pixels (raw, before normalising) around the image, then a crop of its size
  bool flip = false;  // mirrored left to right for half of the samples
  uint64_t seed = 0;
};

class Transform {
 public:
  // image_shape [h, w, c]. Throws Error when mean or std does not have c finite values, std is not positive, or pad <
  // 0.
  Transform(Shape image_shape, TransformOptions options);

  // to = (image / 255 - mean) / std, both [h, w, c].
  void normalize(const uint8_t* image, float* to) const;

  // The same after the crop and flip drawn for (seed, epoch, sample), whichever rank or thread asks.
  void augment(const uint8_t* image, int64_t epoch, int64_t sample, float* to) const;

 private:
  void convert(const uint8_t* from, int64_t pixels, float* to) const;

  Shape shape_;
  TransformOptions options_;
  std::vector<std::array<float, 256>> value_;  // [c][byte]
};

}  // namespace godwit::data
