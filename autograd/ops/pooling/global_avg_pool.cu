#include "autograd/ops/pooling/global_avg_pool.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

// Sums each row of pixels in compute_t, and the rows in float64.
template <class T>
struct PixelMean {
  const T* from;
  int64_t height, width, channels;
  template <int n>
  __device__ void operator()(uint32_t image, uint32_t c, T (&values)[n]) const {
    using C = compute_t<T>;
    double total[n] = {};
    const T* at = from + image * height * width * channels + c;
    for (int64_t r = 0; r < height; ++r) {
      C row[n] = {};
      for (int64_t column = 0; column < width; ++column, at += channels) {
        const auto pixel = detail::load_pack<n>(at, 0);
        for (int k = 0; k < n; ++k) row[k] += C(pixel.values[k]);
      }
      for (int k = 0; k < n; ++k) total[k] += static_cast<double>(row[k]);
    }
    for (int k = 0; k < n; ++k) values[k] = static_cast<T>(total[k] / static_cast<double>(height * width));
  }
};

template <class T>
struct PixelSpread {
  const T* from;
  uint32_t pixels;
  int64_t channels;
  compute_t<T> share;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    const auto of_image = detail::load_pack<n>(from + pixel / pixels * channels + c, 0);
    for (int k = 0; k < n; ++k) values[k] = static_cast<T>(compute_t<T>(of_image.values[k]) * share);
  }
};

}  // namespace

void global_avg_pool_forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "global_avg_pool", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    generate_rows(device, "global_avg_pool", x.dim(0), x.dim(3), x.dim(3),
                  PixelMean<T>{from, x.dim(1), x.dim(2), x.dim(3)}, y.cuda_data<T>(), from);
  });
}

void global_avg_pool_backward(Cuda device, const Tensor& dy, const Tensor& dx) {
  dispatch_float(dx.dtype(), "global_avg_pool", [&]<class T>() {
    using C = compute_t<T>;
    const int64_t pixels = dx.dim(1) * dx.dim(2);
    const T* from = dy.cuda_data<T>();
    generate_rows(
        device, "global_avg_pool", dx.dim(0) * pixels, dx.dim(3), dx.dim(3),
        PixelSpread<T>{from, index_count("global_avg_pool", pixels), dx.dim(3), C(1) / static_cast<C>(pixels)},
        dx.cuda_data<T>(), from);
  });
}

}  // namespace godwit
