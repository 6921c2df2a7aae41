#include "autograd/ops/pooling/adaptive_avg_pool2d.h"
#include "autograd/ops/pooling/adaptive_windows.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

template <class T>
struct Mean {
  detail::AdaptiveWindows w;
  const T* from;
  __device__ double operator()(int64_t at) const {
    const int64_t c = at % w.channels, o = at / w.channels % w.columns.out;
    const int64_t row = at / (w.channels * w.columns.out), image = row / w.rows.out;
    return w.mean(from + image * w.rows.in * w.columns.in * w.channels + c, row % w.rows.out, o);
  }
};

template <class T>
struct Spread {
  detail::AdaptiveWindows w;
  const T* from;
  __device__ double operator()(int64_t at) const {
    const int64_t c = at % w.channels, j = at / w.channels % w.columns.in;
    const int64_t row = at / (w.channels * w.columns.in), image = row / w.rows.in;
    return w.spread(from + image * w.rows.out * w.columns.out * w.channels + c, row % w.rows.in, j);
  }
};

detail::AdaptiveWindows windows(const Tensor& x, const Tensor& y) {
  return {{x.dim(1), y.dim(1)}, {x.dim(2), y.dim(2)}, x.dim(3)};
}

}  // namespace

void adaptive_avg_pool2d_forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "adaptive_avg_pool2d", [&]<class T>() {
    generate(device, "adaptive_avg_pool2d", y.numel(), Mean<T>{windows(x, y), x.cuda_data<T>()}, y.cuda_data<T>());
  });
}

void adaptive_avg_pool2d_backward(Cuda device, const Tensor& dy, const Tensor& dx) {
  dispatch_float(dy.dtype(), "adaptive_avg_pool2d", [&]<class T>() {
    generate(device, "adaptive_avg_pool2d", dx.numel(), Spread<T>{windows(dx, dy), dy.cuda_data<T>()},
             dx.cuda_data<T>());
  });
}

}  // namespace godwit
