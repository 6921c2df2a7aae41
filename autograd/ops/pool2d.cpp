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

  // f(x, y, tap) for every tap of window column o within row `out` of all output rows; x and y are offsets of pixels.
  template <class F>
  GODWIT_INLINE void for_taps(int64_t out, int64_t o, F f) const {
    const int64_t image = out / rows.out, r = out % rows.out;
    for (int64_t i = rows.first_tap(r); i < rows.end_tap(r); ++i)
      for (int64_t j = columns.first_tap(o); j < columns.end_tap(o); ++j) {
        const int64_t row = image * rows.in + rows.start(r) + i, column = columns.start(o) + j;
        f((row * columns.in + column) * channels, i * columns.kernel + j);
      }
  }

  // f(y, tap) for every window that covers pixel `column` of row `in` of all input rows, in order of the windows.
  template <class F>
  GODWIT_INLINE void for_windows(int64_t in, int64_t column, F f) const {
    const int64_t image = in / rows.in, i = in % rows.in;
    for (int64_t r = rows.first_window(i); r < rows.end_window(i); ++r)
      for (int64_t o = columns.first_window(column); o < columns.end_window(column); ++o) {
        const int64_t tap = (i - rows.start(r)) * columns.kernel + column - columns.start(o);
        f(((image * rows.out + r) * columns.out + o) * channels, tap);
      }
  }
};

// dx [pixel] = Σ over the windows that cover it of value(offset of the window, tap, channel); every pixel is written by
// one thread, in one order.
template <class T, class F>
void gather(const Geometry& g, T* dx, F value) {
  vector_for(g.images * g.rows.in, g.grain(g.columns.in), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t column = 0; column < g.columns.in; ++column) {
        T* __restrict to = dx + (row * g.columns.in + column) * g.channels;
        std::fill_n(to, g.channels, T(0));
        g.for_windows(row, column, [=, &g](int64_t window, int64_t tap) GODWIT_INLINE {
          for (int64_t c = 0; c < g.channels; ++c) to[c] += value(window + c, tap);
        });
      }
  });
}

}  // namespace

Shape pool2d_shape(const Tensor& x, const Pool2dOptions& options, const char* operation) {
  check(x.shape().rank() == 4, operation, ": x must be [n, h, w, c], it is ", x.shape());
  check(options.kernel >= 1 && options.stride >= 1, operation, ": kernel and stride must be at least 1, they are ",
        options.kernel, " and ", options.stride);
  check(options.padding >= 0 && options.padding <= options.kernel / 2, operation,
        ": padding must be in [0, kernel / 2], ", "it is ", options.padding, " with kernel ", options.kernel);
  check(x.dim(1) + 2 * options.padding >= options.kernel && x.dim(2) + 2 * options.padding >= options.kernel, operation,
        ": a window of ", options.kernel, " with padding ", options.padding, " does not fit into x ", x.shape());
  auto extent = [&](int64_t in) { return (in + 2 * options.padding - options.kernel) / options.stride + 1; };
  return {x.dim(0), extent(x.dim(1)), extent(x.dim(2)), x.dim(3)};
}

void max_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y, const Tensor& taps) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_real(x.dtype(), "max_pool2d", [&]<class T>() {
    using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;  // as wide as T, for the vectoriser
    const T* from = x.data<T>();
    T* out = y.data<T>();
    uint8_t* kept = taps.data<uint8_t>();
    vector_for(g.images * g.rows.out, g.grain(g.columns.out), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<Index> scratch(g.channels);
      Index* __restrict where = scratch.data();
      for (int64_t row = begin; row < end; ++row)
        for (int64_t o = 0; o < g.columns.out; ++o) {
          const int64_t at = (row * g.columns.out + o) * g.channels;
          T* __restrict best = out + at;
          bool first = true;
          g.for_taps(row, o, [&](int64_t pixel, int64_t tap) GODWIT_INLINE {
            const T* value = from + pixel;
            const Index here = static_cast<Index>(tap);
            for (int64_t c = 0; c < g.channels; ++c) {
              const T v = value[c], b = first ? v : best[c];
              const bool larger = first || (!(v <= b) && b == b);
              best[c] = larger ? v : b;
              where[c] = larger ? here : where[c];
            }
            first = false;
          });
          for (int64_t c = 0; c < g.channels; ++c) kept[at + c] = static_cast<uint8_t>(where[c]);
        }
    });
  });
}

void max_pool2d_backward(Cpu, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_real(dx.dtype(), "max_pool2d", [&]<class T>() {
    gather(g, dx.data<T>(), [from = dy.data<T>(), kept = taps.data<uint8_t>()](int64_t i, int64_t tap) GODWIT_INLINE {
      const T passed = from[i];
      return kept[i] == tap ? passed : T(0);
    });
  });
}

void avg_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_real(x.dtype(), "avg_pool2d", [&]<class T>() {
    const T *from = x.data<T>(), share = T(1) / static_cast<T>(options.kernel * options.kernel);
    T* out = y.data<T>();
    vector_for(g.images * g.rows.out, g.grain(g.columns.out), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t o = 0; o < g.columns.out; ++o) {
          T* __restrict sum = out + (row * g.columns.out + o) * g.channels;
          std::fill_n(sum, g.channels, T(0));
          g.for_taps(row, o, [&](int64_t pixel, int64_t) GODWIT_INLINE {
            for (int64_t c = 0; c < g.channels; ++c) sum[c] += from[pixel + c];
          });
          for (int64_t c = 0; c < g.channels; ++c) sum[c] *= share;
        }
    });
  });
}

void avg_pool2d_backward(Cpu, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_real(dx.dtype(), "avg_pool2d", [&]<class T>() {
    const T share = T(1) / static_cast<T>(options.kernel * options.kernel);
    gather(g, dx.data<T>(), [share, from = dy.data<T>()](int64_t i, int64_t) GODWIT_INLINE { return from[i] * share; });
  });
}

}  // namespace godwit
