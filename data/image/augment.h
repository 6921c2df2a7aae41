// Which part of a photograph is used, and changes of its colours.
#pragma once
#include "data/image/resample.h"
#include "engine/philox.h"

namespace godwit::data {

// Of training: 8 to 100 % of the area, sides in a ratio from 3:4 to 4:3; ten tries, then the largest centred part that
// has the ratio (torchvision's RandomResizedCrop).
Rect random_resized_crop(int64_t width, int64_t height, RandomStream& random);

// Of evaluation: the centred crop × crop pixels after the short side was made `resize` long.
Box center_box(int64_t width, int64_t height, int64_t resize, int64_t crop);

enum class Color { brightness, contrast, saturation };

// Each value becomes factor times itself plus 1 - factor times black, the image's mean grey, or the pixel's grey. rgb
// [pixels, 3], values in [0, 255].
void change_color(float* rgb, int64_t pixels, Color what, float factor);

// All three in random order, each by a factor from [max(0, 1 - strength), 1 + strength].
void color_jitter(float* rgb, int64_t pixels, double strength, RandomStream& random);

}  // namespace godwit::data
