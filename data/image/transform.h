// Normalizes byte images to floats and applies the augmentation for small images: padding, random crop, random flip.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "engine/shape.h"

namespace godwit::data {

struct TransformOptions {
  std::vector<float> mean = {}, std = {};  // per channel, for pixel values in [0, 1]; both empty: 0 and 1
  int64_t pad = 0;    // zero padding in pixels (before normalization), then a random crop to the original size
  bool flip = false;  // flip half of the samples horizontally
  uint64_t seed = 0;
};

// Normalizes and augments images of one shape.
class Transform {
 public:
  // image_shape: [h, w, c]. Throws if mean or std does not have c finite values, std is not positive, or pad < 0.
  Transform(Shape image_shape, TransformOptions options);

  // to = (image / 255 - mean) / std, both [h, w, c].
  void normalize(const uint8_t* image, float* to) const;

  // Like normalize(), after a random crop and flip. Both depend only on (seed, epoch, sample).
  void augment(const uint8_t* image, int64_t epoch, int64_t sample, float* to) const;

 private:
  void convert(const uint8_t* from, int64_t pixels, float* to) const;

  Shape shape_;
  TransformOptions options_;
  std::vector<std::array<float, 256>> value_;  // [c][byte]
};

}  // namespace godwit::data
