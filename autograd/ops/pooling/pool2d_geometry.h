// Maps pooling windows to the inputs they cover, and inputs to the windows that cover them.
#pragma once
#include <algorithm>
#include <cstdint>

#include "autograd/ops/pooling/pool2d.h"

namespace godwit::detail {

// Windows over rows or columns: output o covers inputs [o · stride - padding, … + kernel).
struct PoolAxis {
  int64_t in, out, kernel, stride, padding;

  constexpr int64_t start(int64_t o) const { return o * stride - padding; }
  // Taps of window o inside the image.
  constexpr int64_t first_tap(int64_t o) const { return std::max<int64_t>(0, -start(o)); }
  constexpr int64_t end_tap(int64_t o) const { return std::min(kernel, in - start(o)); }
  // Windows that cover input i.
  constexpr int64_t first_window(int64_t i) const {
    return std::max<int64_t>(0, (i + padding - kernel + stride) / stride);
  }
  constexpr int64_t end_window(int64_t i) const { return std::min(out, (i + padding) / stride + 1); }
};

struct PoolGeometry {
  PoolAxis rows, columns;
  int64_t images, channels;

  PoolGeometry(const Shape& x, const Shape& y, const Pool2dOptions& o)
      : rows{x[1], y[1], o.kernel, o.stride, o.padding},
        columns{x[2], y[2], o.kernel, o.stride, o.padding},
        images(x[0]),
        channels(x[3]) {}
  // Minimum rows per thread, for rows of `width` pixels.
  int64_t grain(int64_t width) const {
    return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, width * channels));
  }
  // Offset in x of tap (i, j) of window (r, o).
  constexpr int64_t pixel(int64_t image, int64_t r, int64_t o, int64_t i, int64_t j) const {
    return ((image * rows.in + rows.start(r) + i) * columns.in + columns.start(o) + j) * channels;
  }
  // Offset of window (r, o) in y.
  constexpr int64_t window(int64_t image, int64_t r, int64_t o) const {
    return ((image * rows.out + r) * columns.out + o) * channels;
  }
};

}  // namespace godwit::detail
