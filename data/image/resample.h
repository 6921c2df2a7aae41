// Resizes with a triangle filter that is widened when shrinking (antialiased bilinear), as PIL and torchvision do.
#pragma once
#include "data/image/jpeg.h"

namespace godwit::data {

// A rectangle whose corners may lie between pixels.
struct Box {
  double left = 0, top = 0, width = 0, height = 0;  // left upper corner and size
};

// Resizes `box` (in full-image pixels) to [height, width, 3], values in [0, 255]. Reads only pixels in `from`. Mirrors
// horizontally if `flip`.
void resample(const Pixels& from, const Box& box, bool flip, int64_t height, int64_t width, float* to);

// The pixels of a width × height image that resample() reads for `box` and the target size: the window to decode.
Rect resample_window(const Box& box, int64_t width, int64_t height, int64_t to_height, int64_t to_width);

}  // namespace godwit::data
