#include "autograd/ops/pool2d.h"

#include <vector>

#include "engine/vector_loop.h"

namespace godwit {
namespace {

// The windows over rows or columns: output o covers inputs [o · stride - padding, … + kernel).
struct Axis {
  int64_t in, out, kernel, stride, padding;

  int64_t start(int64_t o) const { return o * stride - padding; }
  // Taps of window o that lie inside.
  int64_t first_tap(int64_t o) const { return std::max<int64_t>(0, -start(o)); }
  int64_t end_tap(int64_t o) const { return std::min(kernel, in - start(o)); }
  // Windows that cover input i.
  int64_t first_window(int64_t i) const { return std::max<int64_t>(0, (i + padding - kernel + stride) / stride); }
  int64_t end_window(int64_t i) const { return std::min(out, (i + padding) / stride + 1); }
};

struct Geometry {
  Axis rows, columns;
  int64_t images, channels;

  Geometry(const Shape& x, const Shape& y, const Pool2dOptions& o)
      : rows{x[1], y[1], o.kernel, o.stride, o.padding},
        columns{x[2], y[2], o.kernel, o.stride, o.padding},
        images(x[0]),
        channels(x[3]) {}
  int64_t grain(int64_t width) const {
    return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, width * channels));
  }

  // f(offset of the pixel in x, tap) for the taps of window o in row `out` of all output rows.
  template <class F>
  GODWIT_INLINE void for_taps(int64_t image, int64_t r, int64_t o, F f) const {
    for (int64_t i = rows.first_tap(r); i < rows.end_tap(r); ++i)
      for (int64_t j = columns.first_tap(o); j < columns.end_tap(o); ++j)
        f(pixel(image, r, o, i, j), i * rows.kernel + j);
  }
  // Offset in x of tap (i, j) of window (r, o).
  int64_t pixel(int64_t image, int64_t r, int64_t o, int64_t i, int64_t j) const {
    return ((image * rows.in + rows.start(r) + i) * columns.in + columns.start(o) + j) * channels;
  }
};

// As wide as T, for the vectoriser.
template <class T>
using IndexFor = std::conditional_t<sizeof(T) == 8, int64_t, std::conditional_t<sizeof(T) == 4, int32_t, int16_t>>;

// Where v is larger than the best, or the first NaN, it and its tap take the place.
template <class T, class Index>
GODWIT_INLINE inline void keep_larger(int64_t n, const T* __restrict v, Index tap, T* __restrict best,
                                      Index* __restrict where) {
  for (int64_t c = 0; c < n; ++c) {
    const compute_t<T> value(v[c]), old(best[c]);
    const bool larger = !(value <= old) & (old == old);
    where[c] = larger ? tap : where[c];
    best[c] = larger ? v[c] : best[c];
  }
}

// dx = Σ over the windows that cover a pixel of value(offset in dy, tap), in compute_t. A row of dx is written by one
// thread, window after window.
template <class T, class F>
void gather(const Geometry& g, T* dx, F value) {
  vector_for(g.images * g.rows.in, g.grain(g.columns.in), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    using C = compute_t<T>;
    const int64_t width = g.columns.in * g.channels;
    std::vector<C> sums(std::is_same_v<T, C> ? 0 : width);  // of a row, where they are not those of T
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / g.rows.in, in = row % g.rows.in;
      C* dx_row = sums.data();
      if constexpr (std::is_same_v<T, C>) dx_row = dx + row * width;
      std::fill_n(dx_row, width, C(0));
      for (int64_t r = g.rows.first_window(in); r < g.rows.end_window(in); ++r)
        for (int64_t o = 0; o < g.columns.out; ++o)
          for (int64_t j = g.columns.first_tap(o); j < g.columns.end_tap(o); ++j) {
            const int64_t window = ((image * g.rows.out + r) * g.columns.out + o) * g.channels;
            const int64_t tap = (in - g.rows.start(r)) * g.rows.kernel + j;
            C* __restrict to = dx_row + (g.columns.start(o) + j) * g.channels;
            for (int64_t c = 0; c < g.channels; ++c) to[c] += value(window + c, tap);
          }
      if constexpr (!std::is_same_v<T, C>)
        for (int64_t i = 0; i < width; ++i) dx[row * width + i] = static_cast<T>(sums[i]);
    }
  });
}

}  // namespace

Shape pool2d_shape(const Tensor& x, const Pool2dOptions& options, const char* operation) {
  check(x.shape().rank() == 4, operation, ": x must be [n, h, w, c], it is ", x.shape());
  check(options.kernel >= 1 && options.stride >= 1, operation, ": kernel and stride must be at least 1, they are ",
        options.kernel, " and ", options.stride);
  check(options.padding >= 0 && options.padding <= options.kernel / 2, operation,
        ": padding must be in [0, kernel / 2], it is ", options.padding, " with kernel ", options.kernel);
  check(x.dim(1) + 2 * int64_t{options.padding} >= options.kernel &&
            x.dim(2) + 2 * int64_t{options.padding} >= options.kernel,
        operation, ": a window of ", options.kernel, " with padding ", options.padding, " does not fit into x ",
        x.shape());
  auto extent = [&](int64_t in) { return (in + 2 * int64_t{options.padding} - options.kernel) / options.stride + 1; };
  return {x.dim(0), extent(x.dim(1)), extent(x.dim(2)), x.dim(3)};
}

void max_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y, const Tensor& taps) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "max_pool2d", [&]<class T>() {
    using Index = IndexFor<T>;
    const T* from = x.data<T>();
    T* out = y.data<T>();
    uint8_t* kept = taps.data<uint8_t>();
    vector_for(g.images * g.rows.out, g.grain(g.columns.out), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<Index> scratch(g.channels);
      for (int64_t row = begin; row < end; ++row)
        for (int64_t o = 0; o < g.columns.out; ++o) {
          const int64_t image = row / g.rows.out, r = row % g.rows.out, at = (row * g.columns.out + o) * g.channels;
          const int64_t i = g.rows.first_tap(r), j = g.columns.first_tap(o);
          T* best = out + at;
          Index* where = scratch.data();
          std::copy_n(from + g.pixel(image, r, o, i, j), g.channels, best);
          std::fill_n(where, g.channels, static_cast<Index>(i * g.rows.kernel + j));
          g.for_taps(image, r, o, [=](int64_t pixel, int64_t tap) GODWIT_INLINE {
            keep_larger(g.channels, from + pixel, static_cast<Index>(tap), best, where);
          });
          for (int64_t c = 0; c < g.channels; ++c) kept[at + c] = static_cast<uint8_t>(where[c]);
        }
    });
  });
}

void max_pool2d_backward(Cpu, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "max_pool2d", [&]<class T>() {
    gather(g, dx.data<T>(), [from = dy.data<T>(), kept = taps.data<uint8_t>()](int64_t i, int64_t tap) GODWIT_INLINE {
      const compute_t<T> passed(from[i]);
      return IndexFor<T>{kept[i]} == static_cast<IndexFor<T>>(tap) ? passed : compute_t<T>(0);
    });
  });
}

void avg_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "avg_pool2d", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    const C share = C(1) / static_cast<C>(options.kernel * options.kernel);
    T* out = y.data<T>();
    vector_for(g.images * g.rows.out, g.grain(g.columns.out), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<C> sums(g.channels);
      C* __restrict sum = sums.data();
      for (int64_t row = begin; row < end; ++row)
        for (int64_t o = 0; o < g.columns.out; ++o) {
          T* __restrict mean = out + (row * g.columns.out + o) * g.channels;
          std::fill_n(sum, g.channels, C(0));
          g.for_taps(row / g.rows.out, row % g.rows.out, o, [=](int64_t pixel, int64_t) GODWIT_INLINE {
            for (int64_t c = 0; c < g.channels; ++c) sum[c] += C(from[pixel + c]);
          });
          for (int64_t c = 0; c < g.channels; ++c) mean[c] = static_cast<T>(sum[c] * share);
        }
    });
  });
}

void avg_pool2d_backward(Cpu, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "avg_pool2d", [&]<class T>() {
    using C = compute_t<T>;
    const C share = C(1) / static_cast<C>(options.kernel * options.kernel);
    gather(g, dx.data<T>(),
           [share, from = dy.data<T>()](int64_t i, int64_t) GODWIT_INLINE { return C(from[i]) * share; });
  });
}

}  // namespace godwit
