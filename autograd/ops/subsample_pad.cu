#include "autograd/ops/subsample_pad.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

// Extents of x and y.
struct Extents {
  int64_t h, w, c, out_h, out_w, out_c, stride;
};

template <class T>
struct Taken {
  Extents e;
  const T* x;
  __device__ T operator()(int64_t at) const {
    const int64_t c = at % e.out_c, j = at / e.out_c % e.out_w, row = at / (e.out_c * e.out_w);
    if (c >= e.c) return T(0);
    return x[((row / e.out_h * e.h + row % e.out_h * e.stride) * e.w + j * e.stride) * e.c + c];
  }
};

template <class T>
struct PutBack {
  Extents e;
  const T* dy;
  __device__ T operator()(int64_t at) const {
    const int64_t c = at % e.c, j = at / e.c % e.w, row = at / (e.c * e.w), i = row % e.h;
    if (i % e.stride != 0 || j % e.stride != 0) return T(0);
    return dy[((row / e.h * e.out_h + i / e.stride) * e.out_w + j / e.stride) * e.out_c + c];
  }
};

}  // namespace

void subsample_pad_forward(Cuda device, const Tensor& x, int stride, const Tensor& y) {
  const Extents e{x.dim(1), x.dim(2), x.dim(3), y.dim(1), y.dim(2), y.dim(3), stride};
  dispatch_float(x.dtype(), "subsample_pad", [&]<class T>() {
    generate(device, "subsample_pad", y.numel(), Taken<T>{e, x.cuda_data<T>()}, y.cuda_data<T>());
  });
}

void subsample_pad_backward(Cuda device, const Tensor& dy, int stride, const Tensor& dx) {
  const Extents e{dx.dim(1), dx.dim(2), dx.dim(3), dy.dim(1), dy.dim(2), dy.dim(3), stride};
  dispatch_float(dy.dtype(), "subsample_pad", [&]<class T>() {
    generate(device, "subsample_pad", dx.numel(), PutBack<T>{e, dy.cuda_data<T>()}, dx.cuda_data<T>());
  });
}

}  // namespace godwit
