#include "data/image/transform.h"

#include <algorithm>
#include <cmath>

#include "engine/check.h"
#include "engine/philox.h"

namespace godwit::data {

Transform::Transform(Shape image_shape, TransformOptions options) : shape_(image_shape), options_(std::move(options)) {
  check(shape_.rank() == 3, "transform: expected image shape [h, w, c], found ", shape_);
  const auto channels = static_cast<size_t>(shape_[2]);
  auto& [mean, std, pad, flip, seed] = options_;
  if (mean.empty() && std.empty()) {
    mean.assign(channels, 0.f);
    std.assign(channels, 1.f);
  }
  check(mean.size() == channels && std.size() == channels, "transform: ", mean.size(), " means and ", std.size(),
        " standard deviations for images ", shape_, " of ", channels, " channels");
  check(pad >= 0 && pad <= (1 << 20), "transform: pad ", pad, ", expected 0 or a few pixels");
  value_.resize(channels);
  for (size_t c = 0; c < channels; ++c) {
    check(std::isfinite(mean[c]) && std::isfinite(std[c]) && std[c] > 0, "transform: mean ", mean[c],
          " and standard deviation ", std[c], " of channel ", c, ", expected finite and positive");
    for (int byte = 0; byte < 256; ++byte)
      value_[c][static_cast<size_t>(byte)] = (static_cast<float>(byte) / 255.f - mean[c]) / std[c];
  }
}

void Transform::convert(const uint8_t* from, int64_t pixels, float* to) const {
  if (value_.size() == 1) {
    const float* value = value_[0].data();
    for (int64_t i = 0; i < pixels; ++i) to[i] = value[from[i]];
    return;
  }
  for (int64_t i = 0; i < pixels; ++i)
    for (const auto& value : value_) *to++ = value[*from++];
}

void Transform::normalize(const uint8_t* image, float* to) const { convert(image, shape_[0] * shape_[1], to); }

void Transform::augment(const uint8_t* image, int64_t epoch, int64_t sample, float* to) const {
  RandomStream random(options_.seed, Purpose::augment, static_cast<uint32_t>(epoch), static_cast<uint32_t>(sample));
  const int64_t h = shape_[0], w = shape_[1], c = shape_[2], pad = options_.pad;
  const auto places = static_cast<uint32_t>(2 * pad + 1);
  // The crop's corner, relative to the image.
  const int64_t down = random.below(places) - pad, right = random.below(places) - pad;
  const bool flip = options_.flip && (random.next() >> 31);

  const int64_t left_pad = std::clamp<int64_t>(-right, 0, w), right_pad = std::clamp<int64_t>(right, 0, w);
  const auto zeros = [&](float* at, int64_t pixels) {
    for (int64_t i = 0; i < pixels; ++i)
      for (const auto& value : value_) *at++ = value[0];
  };
  for (int64_t y = 0; y < h; ++y, to += w * c) {
    if (y + down < 0 || y + down >= h) {
      zeros(to, w);
      continue;
    }
    const int64_t inside = w - left_pad - right_pad;
    zeros(to, left_pad);
    convert(image + ((y + down) * w + right_pad) * c, inside, to + left_pad * c);
    zeros(to + (left_pad + inside) * c, right_pad);
    if (!flip) continue;
    for (int64_t a = 0, b = w - 1; a < b; ++a, --b) std::swap_ranges(to + a * c, to + (a + 1) * c, to + b * c);
  }
}

}  // namespace godwit::data
