#include "autograd/ops/pooling/pool2d.h"
#include "autograd/ops/pooling/pool2d_geometry.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

using Geometry = detail::PoolGeometry;

// Indices of element i of x or y.
struct Place {
  int64_t image, r, o, c;
  __device__ Place(int64_t i, int64_t rows, int64_t columns, int64_t channels)
      : image(i / (rows * columns * channels)),
        r(i / (columns * channels) % rows),
        o(i / channels % columns),
        c(i % channels) {}
};

// A larger value, or the first NaN, replaces the maximum.
template <class T>
__global__ void max_kernel(Geometry g, int64_t n, const T* x, T* y, uint8_t* taps) {
  using C = compute_t<T>;
  for (int64_t at = grid_thread(); at < n; at += grid_threads()) {
    const Place p(at, g.rows.out, g.columns.out, g.channels);
    const int64_t i0 = g.rows.first_tap(p.r), i1 = g.rows.end_tap(p.r);
    const int64_t j0 = g.columns.first_tap(p.o), j1 = g.columns.end_tap(p.o);
    C best = C(x[g.pixel(p.image, p.r, p.o, i0, j0) + p.c]);
    int64_t where = i0 * g.rows.kernel + j0;
    for (int64_t i = i0; i < i1; ++i)
      for (int64_t j = j0; j < j1; ++j) {
        const C value = C(x[g.pixel(p.image, p.r, p.o, i, j) + p.c]);
        if (!(value <= best) && best == best) best = value, where = i * g.rows.kernel + j;
      }
    y[at] = static_cast<T>(best);
    taps[at] = static_cast<uint8_t>(where);
  }
}

// Σ slope(window, tap) over the windows that cover a pixel, in row order; tap is the pixel's position in the window.
template <class C, class F>
__device__ C sum_of_windows(const Geometry& g, int64_t at, const F& slope) {
  const Place p(at, g.rows.in, g.columns.in, g.channels);
  C sum = 0;
  for (int64_t r = g.rows.first_window(p.r); r < g.rows.end_window(p.r); ++r)
    for (int64_t o = g.columns.first_window(p.o); o < g.columns.end_window(p.o); ++o)
      sum += slope(g.window(p.image, r, o) + p.c, (p.r - g.rows.start(r)) * g.rows.kernel + p.o - g.columns.start(o));
  return sum;
}

// dy if this pixel is the window's maximum.
template <class T>
struct MaxSlope {
  Geometry g;
  const uint8_t* taps;
  const T* dy;
  __device__ compute_t<T> operator()(int64_t at) const {
    using C = compute_t<T>;
    return sum_of_windows<C>(g, at,
                             [&](int64_t window, int64_t tap) { return taps[window] == tap ? C(dy[window]) : C(0); });
  }
};

template <class T>
struct Average {
  Geometry g;
  const T* x;
  compute_t<T> share;
  __device__ compute_t<T> operator()(int64_t at) const {
    const Place p(at, g.rows.out, g.columns.out, g.channels);
    compute_t<T> sum = 0;
    for (int64_t i = g.rows.first_tap(p.r); i < g.rows.end_tap(p.r); ++i)
      for (int64_t j = g.columns.first_tap(p.o); j < g.columns.end_tap(p.o); ++j)
        sum += compute_t<T>(x[g.pixel(p.image, p.r, p.o, i, j) + p.c]);
    return sum * share;
  }
};

template <class T>
struct AverageSlope {
  Geometry g;
  const T* dy;
  compute_t<T> share;
  __device__ compute_t<T> operator()(int64_t at) const {
    using C = compute_t<T>;
    return sum_of_windows<C>(g, at, [&](int64_t window, int64_t) { return C(dy[window]) * share; });
  }
};

template <class T>
compute_t<T> share_of(const Pool2dOptions& options) {
  return compute_t<T>(1) / static_cast<compute_t<T>>(options.kernel * options.kernel);
}

}  // namespace

void max_pool2d_forward(Cuda device, const Tensor& x, const Pool2dOptions& options, const Tensor& y,
                        const Tensor& taps) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "max_pool2d", [&]<class T>() {
    launch(device, "max_pool2d", max_kernel<T>, blocks_for(device, y.numel()), kBlock, g, y.numel(), x.cuda_data<T>(),
           y.cuda_data<T>(), taps.cuda_data<uint8_t>());
  });
}

void max_pool2d_backward(Cuda device, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options,
                         const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "max_pool2d", [&]<class T>() {
    generate(device, "max_pool2d", dx.numel(), MaxSlope<T>{g, taps.cuda_data<uint8_t>(), dy.cuda_data<T>()},
             dx.cuda_data<T>());
  });
}

void avg_pool2d_forward(Cuda device, const Tensor& x, const Pool2dOptions& options, const Tensor& y) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "avg_pool2d", [&]<class T>() {
    generate(device, "avg_pool2d", y.numel(), Average<T>{g, x.cuda_data<T>(), share_of<T>(options)}, y.cuda_data<T>());
  });
}

void avg_pool2d_backward(Cuda device, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "avg_pool2d", [&]<class T>() {
    generate(device, "avg_pool2d", dx.numel(), AverageSlope<T>{g, dy.cuda_data<T>(), share_of<T>(options)},
             dx.cuda_data<T>());
  });
}

}  // namespace godwit
