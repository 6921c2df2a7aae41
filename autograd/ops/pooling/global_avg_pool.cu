#include "autograd/ops/pooling/global_avg_pool.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

// Sums each row of pixels in compute_t, and the rows in float64.
template <class T>
struct Mean {
  const T* from;
  int64_t height, width, channels;
  __device__ double operator()(int64_t i) const {
    using C = compute_t<T>;
    const int64_t image = i / channels, c = i % channels;
    double total = 0;
    for (int64_t r = image * height; r < (image + 1) * height; ++r) {
      C row = 0;
      for (int64_t pixel = r * width; pixel < (r + 1) * width; ++pixel) row += C(from[pixel * channels + c]);
      total += static_cast<double>(row);
    }
    return total / static_cast<double>(height * width);
  }
};

template <class T>
struct Spread {
  const T* from;
  int64_t pixels, channels;
  compute_t<T> share;
  __device__ compute_t<T> operator()(int64_t i) const {
    return compute_t<T>(from[i / (pixels * channels) * channels + i % channels]) * share;
  }
};

}  // namespace

void global_avg_pool_forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "global_avg_pool", [&]<class T>() {
    generate(device, "global_avg_pool", y.numel(), Mean<T>{x.cuda_data<T>(), x.dim(1), x.dim(2), x.dim(3)},
             y.cuda_data<T>());
  });
}

void global_avg_pool_backward(Cuda device, const Tensor& dy, const Tensor& dx) {
  dispatch_float(dx.dtype(), "global_avg_pool", [&]<class T>() {
    using C = compute_t<T>;
    const int64_t pixels = dx.dim(1) * dx.dim(2);
    generate(device, "global_avg_pool", dx.numel(),
             Spread<T>{dy.cuda_data<T>(), pixels, dx.dim(3), C(1) / static_cast<C>(pixels)}, dx.cuda_data<T>());
  });
}

}  // namespace godwit
