// Random crops and color changes of photographs.
#pragma once
#include "data/image/resample.h"
#include "engine/philox.h"

namespace godwit::data {

// Training crop: 8 to 100 % of the area, aspect ratio from 3:4 to 4:3. After ten failed tries, the largest centered
// part within these ratios is used, as in torchvision's RandomResizedCrop.
Rect random_resized_crop(int64_t width, int64_t height, RandomStream& random);

// Evaluation crop: the central crop × crop pixels after the short side was resized to `resize`.
Box center_box(int64_t width, int64_t height, int64_t resize, int64_t crop);

enum class Color { brightness, contrast, saturation };  // properties that change_color() can change

// Blends each value: factor · value + (1 - factor) · reference. The reference is black for brightness, the image's mean
// gray for contrast, and the pixel's gray for saturation. rgb: [pixels, 3], values in [0, 255].
void change_color(float* rgb, int64_t pixels, Color what, float factor);

// Applies the three changes in random order, each with a random factor in [max(0, 1 - strength), 1 + strength].
void color_jitter(float* rgb, int64_t pixels, double strength, RandomStream& random);

}  // namespace godwit::data
