// Windows of adaptive pooling along one axis, and the windows that cover an input.
#pragma once
#include <cstdint>

namespace godwit::detail {

template <class Index>
struct AdaptiveAxis {
  Index in, out;

  // Window o covers [start(o), end(o)).
  constexpr Index start(Index o) const { return o * in / out; }
  constexpr Index end(Index o) const { return ((o + 1) * in + out - 1) / out; }
  // Windows [first_window(i), end_window(i)) cover input i.
  constexpr Index first_window(Index i) const { return i * out / in; }
  constexpr Index end_window(Index i) const { return ((i + 1) * out + in - 1) / in; }
};

// Axes and strides of pooling x [n, h, w, c] to y [n, out_h, out_w, c].
template <class Index>
struct AdaptiveWindows {
  AdaptiveAxis<Index> rows, columns;
  int64_t channels;

  // Mean of window (r, o) of an image, summed in float64. `from` is the image's first element of this channel.
  template <class T>
  constexpr double mean(const T* from, Index r, Index o) const {
    double sum = 0;
    for (Index i = rows.start(r); i < rows.end(r); ++i)
      for (Index j = columns.start(o); j < columns.end(o); ++j)
        sum += static_cast<double>(from[(i * columns.in + j) * channels]);
    return sum / static_cast<double>(size(r, o));
  }
  // Sum of dy / size over the windows that cover pixel (i, j). `from` is dy's first element of this channel.
  template <class T>
  constexpr double spread(const T* from, Index i, Index j) const {
    double sum = 0;
    for (Index r = rows.first_window(i); r < rows.end_window(i); ++r)
      for (Index o = columns.first_window(j); o < columns.end_window(j); ++o)
        sum += static_cast<double>(from[(r * columns.out + o) * channels]) / static_cast<double>(size(r, o));
    return sum;
  }

 private:
  constexpr Index size(Index r, Index o) const {
    return (rows.end(r) - rows.start(r)) * (columns.end(o) - columns.start(o));
  }
};

}  // namespace godwit::detail
