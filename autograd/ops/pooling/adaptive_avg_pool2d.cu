#include "autograd/ops/pooling/adaptive_avg_pool2d.h"
#include "autograd/ops/pooling/adaptive_windows.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

using Windows = detail::AdaptiveWindows<int32_t>;

template <class T>
struct Mean {
  Windows w;
  const T* from;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    const auto at = static_cast<int32_t>(pixel);
    const int32_t row = at / w.columns.out, image = row / w.rows.out;
    const T* x = from + int64_t{image} * w.rows.in * w.columns.in * w.channels + c;
    for (int k = 0; k < n; ++k)
      values[k] = static_cast<T>(w.mean(x + k, row - image * w.rows.out, at - row * w.columns.out));
  }
};

template <class T>
struct Spread {
  Windows w;
  const T* from;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    const auto at = static_cast<int32_t>(pixel);
    const int32_t row = at / w.columns.in, image = row / w.rows.in;
    const T* dy = from + int64_t{image} * w.rows.out * w.columns.out * w.channels + c;
    for (int k = 0; k < n; ++k)
      values[k] = static_cast<T>(w.spread(dy + k, row - image * w.rows.in, at - row * w.columns.in));
  }
};

// Throws unless products of extents of x and y fit in 32 bits.
Windows windows(const Tensor& x, const Tensor& y) {
  const auto axis = [&](int i) {
    index_count("adaptive_avg_pool2d", (x.dim(i) + 1) * (y.dim(i) + 1));
    return detail::AdaptiveAxis<int32_t>{static_cast<int32_t>(x.dim(i)), static_cast<int32_t>(y.dim(i))};
  };
  return {axis(1), axis(2), x.dim(3)};
}

}  // namespace

void adaptive_avg_pool2d_forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "adaptive_avg_pool2d", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    generate_rows(device, "adaptive_avg_pool2d", y.dim(0) * y.dim(1) * y.dim(2), y.dim(3), y.dim(3),
                  Mean<T>{windows(x, y), from}, y.cuda_data<T>(), from);
  });
}

void adaptive_avg_pool2d_backward(Cuda device, const Tensor& dy, const Tensor& dx) {
  dispatch_float(dy.dtype(), "adaptive_avg_pool2d", [&]<class T>() {
    const T* from = dy.cuda_data<T>();
    generate_rows(device, "adaptive_avg_pool2d", dx.dim(0) * dx.dim(1) * dx.dim(2), dx.dim(3), dx.dim(3),
                  Spread<T>{windows(dx, dy), from}, dx.cuda_data<T>(), from);
  });
}

}  // namespace godwit
