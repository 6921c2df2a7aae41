#include <numeric>

#include "autograd/ops/subsample_pad.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

// Extents of x and y.
struct Extents {
  uint32_t h, w, c, out_h, out_w, out_c, stride;
  Extents(const Tensor& x, const Tensor& y, int step)
      : h(size(x, 1)),
        w(size(x, 2)),
        c(size(x, 3)),
        out_h(size(y, 1)),
        out_w(size(y, 2)),
        out_c(size(y, 3)),
        stride(static_cast<uint32_t>(step)) {}
  static uint32_t size(const Tensor& t, int i) { return index_count("subsample_pad", t.dim(i)); }
  int64_t unit() const { return std::gcd(c, out_c); }  // channels that are copied or padded together
};

template <class T>
struct Taken {
  Extents e;
  const T* x;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    const uint32_t row = pixel / e.out_w, j = pixel - row * e.out_w, image = row / e.out_h, i = row - image * e.out_h;
    detail::Pack<T, n> from = {};
    if (c < e.c)
      from = detail::load_pack<n>(x + ((int64_t{image} * e.h + i * e.stride) * e.w + j * e.stride) * e.c + c, 0);
    for (int k = 0; k < n; ++k) values[k] = from.values[k];
  }
};

template <class T>
struct PutBack {
  Extents e;
  const T* dy;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    const uint32_t row = pixel / e.w, j = pixel - row * e.w, image = row / e.h, i = row - image * e.h;
    const uint32_t r = i / e.stride, o = j / e.stride;
    detail::Pack<T, n> from = {};
    if (i == r * e.stride && j == o * e.stride)
      from = detail::load_pack<n>(dy + ((int64_t{image} * e.out_h + r) * e.out_w + o) * e.out_c + c, 0);
    for (int k = 0; k < n; ++k) values[k] = from.values[k];
  }
};

}  // namespace

void subsample_pad_forward(Cuda device, const Tensor& x, int stride, const Tensor& y) {
  const Extents e(x, y, stride);
  dispatch_float(x.dtype(), "subsample_pad", [&]<class T>() {
    const T* from = x.cuda_data<T>();
    generate_rows(device, "subsample_pad", y.dim(0) * e.out_h * e.out_w, e.out_c, e.unit(), Taken<T>{e, from},
                  y.cuda_data<T>(), from);
  });
}

void subsample_pad_backward(Cuda device, const Tensor& dy, int stride, const Tensor& dx) {
  const Extents e(dx, dy, stride);
  dispatch_float(dy.dtype(), "subsample_pad", [&]<class T>() {
    const T* from = dy.cuda_data<T>();
    generate_rows(device, "subsample_pad", dx.dim(0) * e.h * e.w, e.c, e.unit(), PutBack<T>{e, from}, dx.cuda_data<T>(),
                  from);
  });
}

}  // namespace godwit
