#include "autograd/ops/pooling/pool2d.h"

#include <type_traits>
#include <vector>

#include "autograd/ops/pooling/pool2d_geometry.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

using Geometry = detail::PoolGeometry;

// Calls f(offset of the pixel in x) for all taps of window (r, o) of an image.
template <class F>
GODWIT_INLINE inline void for_taps(const Geometry& g, int64_t image, int64_t r, int64_t o, F f) {
  for (int64_t i = g.rows.first_tap(r); i < g.rows.end_tap(r); ++i)
    for (int64_t j = g.columns.first_tap(o); j < g.columns.end_tap(o); ++j) f(g.pixel(image, r, o, i, j));
}

// dx = share · Σ of dy over the windows that cover a pixel, in compute_t. One thread writes each row of dx, window by
// window.
template <class T>
void spread(const Geometry& g, compute_t<T> share, const T* dy, T* dx) {
  compute_for(g.images * g.rows.in, g.grain(g.columns.in), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    using C = compute_t<T>;
    const int64_t width = g.columns.in * g.channels;
    std::vector<C> sums(std::is_same_v<T, C> ? 0 : width);  // sums of a row, if T is not C
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / g.rows.in, in = row % g.rows.in;
      C* dx_row = sums.data();
      if constexpr (std::is_same_v<T, C>) dx_row = dx + row * width;
      std::fill_n(dx_row, width, C(0));
      for (int64_t r = g.rows.first_window(in); r < g.rows.end_window(in); ++r)
        for (int64_t o = 0; o < g.columns.out; ++o)
          for (int64_t j = g.columns.first_tap(o); j < g.columns.end_tap(o); ++j) {
            const T* from = dy + g.window(image, r, o);
            C* __restrict to = dx_row + (g.columns.start(o) + j) * g.channels;
            for (int64_t c = 0; c < g.channels; ++c) to[c] += C(from[c]) * share;
          }
      if constexpr (!std::is_same_v<T, C>)
        for (int64_t i = 0; i < width; ++i) dx[row * width + i] = static_cast<T>(sums[i]);
    }
  });
}

}  // namespace

Shape pool2d_shape(const Tensor& x, const Pool2dOptions& options, const char* operation) {
  check(x.shape().rank() == 4, operation, ": x must be [n, h, w, c], got ", x.shape());
  check(options.kernel >= 1 && options.stride >= 1, operation, ": kernel and stride must be at least 1, got ",
        options.kernel, " and ", options.stride);
  check(options.padding >= 0 && options.padding <= options.kernel / 2, operation,
        ": padding must be in [0, kernel / 2], got ", options.padding, " with kernel ", options.kernel);
  check(x.dim(1) + 2 * int64_t{options.padding} >= options.kernel &&
            x.dim(2) + 2 * int64_t{options.padding} >= options.kernel,
        operation, ": a window of ", options.kernel, " with padding ", options.padding, " does not fit into x ",
        x.shape());
  auto extent = [&](int64_t in) { return (in + 2 * int64_t{options.padding} - options.kernel) / options.stride + 1; };
  return {x.dim(0), extent(x.dim(1)), extent(x.dim(2)), x.dim(3)};
}

void avg_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "avg_pool2d", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    const C share = C(1) / static_cast<C>(options.kernel * options.kernel);
    T* out = y.data<T>();
    compute_for(g.images * g.rows.out, g.grain(g.columns.out), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      std::vector<C> sums(g.channels);
      C* __restrict sum = sums.data();
      for (int64_t row = begin; row < end; ++row)
        for (int64_t o = 0; o < g.columns.out; ++o) {
          T* __restrict mean = out + (row * g.columns.out + o) * g.channels;
          std::fill_n(sum, g.channels, C(0));
          for_taps(g, row / g.rows.out, row % g.rows.out, o, [=](int64_t pixel) GODWIT_INLINE {
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
    spread<T>(g, share, dy.data<T>(), dx.data<T>());
  });
}

}  // namespace godwit
