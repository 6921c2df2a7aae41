// Maps pooling windows to the inputs that they cover, and inputs to the windows that cover them.
#pragma once
#include <algorithm>
#include <cstdint>

#include "autograd/ops/pooling/pool2d.h"

namespace godwit::detail {

// Windows over rows or columns: output o covers inputs [o · stride - padding, … + kernel).
template <class Index>
struct PoolAxis {
  Index in, out, kernel, stride, padding;

  constexpr Index start(Index o) const { return o * stride - padding; }
  // Range of taps of window o that are inside the image.
  constexpr Index first_tap(Index o) const { return std::max<Index>(0, -start(o)); }
  constexpr Index end_tap(Index o) const { return std::min(kernel, in - start(o)); }
  // Range of windows that cover input i.
  constexpr Index first_window(Index i) const { return std::max<Index>(0, (i + padding - kernel + stride) / stride); }
  constexpr Index end_window(Index i) const { return std::min(out, (i + padding) / stride + 1); }
};

// Geometry of the pooling windows. Offsets are int64_t for every index type.
template <class Index>
struct BasicPoolGeometry {
  PoolAxis<Index> rows, columns;
  int64_t images, channels;

  BasicPoolGeometry(const Shape& x, const Shape& y, const Pool2dOptions& o)
      : rows{static_cast<Index>(x[1]), static_cast<Index>(y[1]), o.kernel, o.stride, o.padding},
        columns{static_cast<Index>(x[2]), static_cast<Index>(y[2]), o.kernel, o.stride, o.padding},
        images(x[0]),
        channels(x[3]) {}
  // Minimum number of rows per thread, for rows of `width` pixels.
  int64_t grain(int64_t width) const {
    return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, width * channels));
  }
  // Offset in x of tap (i, j) of window (r, o).
  constexpr int64_t pixel(int64_t image, Index r, Index o, Index i, Index j) const {
    return ((image * rows.in + rows.start(r) + i) * columns.in + columns.start(o) + j) * channels;
  }
  // Offset of window (r, o) in y.
  constexpr int64_t window(int64_t image, Index r, Index o) const {
    return ((image * rows.out + r) * columns.out + o) * channels;
  }
};

using PoolGeometry = BasicPoolGeometry<int64_t>;

}  // namespace godwit::detail
