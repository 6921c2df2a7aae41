// Resizing with a triangle filter that widens when it shrinks (antialiased bilinear), as PIL and torchvision resize.
#pragma once
#include "data/image/jpeg.h"

namespace godwit::data {

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

// to [height, width, 3], values in [0, 255]: the part `box` of the full image (in its pixels), interpolated from the
// pixels given and none beside them; mirrored left to right when `flip`.
void resample(const Pixels& from, const Box& box, bool flip, int64_t height, int64_t width, float* to);

// The pixels of a width × height image that resampling `box` to the target size reads: the window to decode.
Rect resample_window(const Box& box, int64_t width, int64_t height, int64_t to_height, int64_t to_width);

}  // namespace godwit::data
