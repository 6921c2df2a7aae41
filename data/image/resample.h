// Resizes images with a triangle filter, which is widened when the image shrinks (antialiased bilinear), as in PIL and
// torchvision.
#pragma once
#include "data/image/jpeg.h"

namespace godwit::data {

// A rectangle whose corners may lie between pixels.
struct Box {
  double left = 0, top = 0, width = 0, height = 0;  // upper left corner and size
};

// Resizes `box` (in full-image pixels) to [height, width, 3], values in [0, 255]. Reads only pixels in `from`. Mirrors
// the result horizontally if `flip`.
void resample(const Pixels& from, const Box& box, bool flip, int64_t height, int64_t width, float* to);

// The window to decode: the pixels of a width × height image that resample() reads for `box` and the target size.
Rect resample_window(const Box& box, int64_t width, int64_t height, int64_t to_height, int64_t to_width);

}  // namespace godwit::data
