#include "autograd/ops/pooling/pool2d.h"
#include "autograd/ops/pooling/pool2d_geometry.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;
using Geometry = detail::BasicPoolGeometry<int32_t>;

// Indices of a pixel of x or y.
struct Place {
  int32_t image, r, o;
  __device__ Place(uint32_t pixel, int32_t rows, int32_t columns) {
    const int32_t at = static_cast<int32_t>(pixel), row = at / columns;
    image = row / rows;
    r = row - image * rows;
    o = at - row * columns;
  }
};

// Calls f(offset of the pixel in x, tap) for the taps of a window inside the image, in order.
template <class F>
__device__ void for_taps(const Geometry& g, const Place& p, const F& f) {
  for (int32_t i = g.rows.first_tap(p.r); i < g.rows.end_tap(p.r); ++i)
    for (int32_t j = g.columns.first_tap(p.o); j < g.columns.end_tap(p.o); ++j)
      f(g.pixel(p.image, p.r, p.o, i, j), i * g.rows.kernel + j);
}

// A larger value, or the first NaN, replaces the maximum. Threads process n channels at a time.
template <int n, class T>
__global__ void pool_max_kernel(Geometry g, uint32_t packs, const T* x, T* y, uint8_t* taps) {
  using C = compute_t<T>;
  const auto row_packs = static_cast<uint32_t>(g.channels / n);
  for (uint32_t at = grid_thread32(); at < packs; at += grid_threads32()) {
    const uint32_t pixel = at / row_packs, c = (at - pixel * row_packs) * n;
    const Place p(pixel, g.rows.out, g.columns.out);
    C best[n];
    Pack<uint8_t, n> where;
    const int32_t i0 = g.rows.first_tap(p.r), j0 = g.columns.first_tap(p.o);
    const auto first = load_pack<n>(x + g.pixel(p.image, p.r, p.o, i0, j0) + c, 0);
    for (int k = 0; k < n; ++k) {
      best[k] = C(first.values[k]);
      where.values[k] = static_cast<uint8_t>(i0 * g.rows.kernel + j0);
    }
    for_taps(g, p, [&](int64_t offset, int32_t tap) {
      const auto values = load_pack<n>(x + offset + c, 0);
      for (int k = 0; k < n; ++k) {
        const C value = C(values.values[k]);
        if (!(value <= best[k]) && best[k] == best[k]) best[k] = value, where.values[k] = static_cast<uint8_t>(tap);
      }
    });
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) to.values[k] = static_cast<T>(best[k]);
    store_pack(y + int64_t{at} * n, to);
    store_pack(taps + int64_t{at} * n, where);
  }
}

// Calls f(offset of the window in y, tap) for the windows that cover a pixel, in row order; tap is the pixel's position
// in the window.
template <class F>
__device__ void for_windows(const Geometry& g, uint32_t pixel, const F& f) {
  const Place p(pixel, g.rows.in, g.columns.in);
  const int32_t first = g.columns.first_window(p.o), end = g.columns.end_window(p.o);
  for (int32_t r = g.rows.first_window(p.r); r < g.rows.end_window(p.r); ++r)
    for (int32_t o = first; o < end; ++o)
      f(g.window(p.image, r, o), (p.r - g.rows.start(r)) * g.rows.kernel + p.o - g.columns.start(o));
}

template <class T, int n, class C>
__device__ void round_to(T (&values)[n], const C (&sums)[n]) {
  for (int k = 0; k < n; ++k) values[k] = static_cast<T>(sums[k]);
}

// dy if this pixel is the window's maximum.
template <class T>
struct MaxGradient {
  Geometry g;
  const uint8_t* taps;
  const T* dy;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    using C = compute_t<T>;
    C sums[n] = {};
    for_windows(g, pixel, [&](int64_t window, int32_t tap) {
      const auto grad = load_pack<n>(dy + window + c, 0);
      const auto at = load_pack<n>(taps + window + c, 0);
      for (int k = 0; k < n; ++k) sums[k] += at.values[k] == tap ? C(grad.values[k]) : C(0);
    });
    round_to(values, sums);
  }
};

template <class T>
struct Average {
  Geometry g;
  const T* x;
  compute_t<T> share;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    compute_t<T> sums[n] = {};
    for_taps(g, Place(pixel, g.rows.out, g.columns.out), [&](int64_t offset, int32_t) {
      const auto in = load_pack<n>(x + offset + c, 0);
      for (int k = 0; k < n; ++k) sums[k] += compute_t<T>(in.values[k]);
    });
    for (int k = 0; k < n; ++k) sums[k] *= share;
    round_to(values, sums);
  }
};

template <class T>
struct AverageGradient {
  Geometry g;
  const T* dy;
  compute_t<T> share;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    compute_t<T> sums[n] = {};
    for_windows(g, pixel, [&](int64_t window, int32_t) {
      const auto grad = load_pack<n>(dy + window + c, 0);
      for (int k = 0; k < n; ++k) sums[k] += compute_t<T>(grad.values[k]) * share;
    });
    round_to(values, sums);
  }
};

// Calls generate_rows() for `to`, an image whose pixels are computed from `from`.
template <class T, class F>
void generate_pixels(Cuda device, const char* operation, const F& f, const Tensor& to, const T* from) {
  generate_rows(device, operation, to.dim(0) * to.dim(1) * to.dim(2), to.dim(3), to.dim(3), f, to.cuda_data<T>(), from);
}

template <class T>
compute_t<T> share_of(const Pool2dOptions& options) {
  return compute_t<T>(1) / static_cast<compute_t<T>>(options.kernel * options.kernel);
}

}  // namespace

void max_pool2d_forward(Cuda device, const Tensor& x, const Pool2dOptions& options, const Tensor& y,
                        const Tensor& taps) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "max_pool2d", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    T* to = y.cuda_data<T>();
    uint8_t* where = taps.cuda_data<uint8_t>();
    by_packs<T>(
        x.dim(3),
        [&]<int n>() {
          const uint32_t packs = index_count("max_pool2d", y.numel() / n);
          launch(device, "max_pool2d", pool_max_kernel<n, T>, blocks_for(device, packs), kBlock, g, packs, from, to,
                 where);
        },
        from, to, where);
  });
}

void max_pool2d_backward(Cuda device, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options,
                         const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "max_pool2d", [&]<class T>() {
    const T* from = dy.cuda_data<T>();
    const uint8_t* where = taps.cuda_data<uint8_t>();
    check(aligned_to<16>(where), "max_pool2d: the positions are not aligned to 16 bytes");
    generate_pixels(device, "max_pool2d", MaxGradient<T>{g, where, from}, dx, from);
  });
}

void avg_pool2d_forward(Cuda device, const Tensor& x, const Pool2dOptions& options, const Tensor& y) {
  const Geometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "avg_pool2d", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    generate_pixels(device, "avg_pool2d", Average<T>{g, from, share_of<T>(options)}, y, from);
  });
}

void avg_pool2d_backward(Cuda device, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  const Geometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "avg_pool2d", [&]<class T>() {
    const T* from = dy.cuda_data<T>();
    generate_pixels(device, "avg_pool2d", AverageGradient<T>{g, from, share_of<T>(options)}, dx, from);
  });
}

}  // namespace godwit
