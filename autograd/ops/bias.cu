#include "autograd/ops/bias.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

template <class T>
struct Element {
  const T* from;
  int64_t width;
  __device__ compute_t<T> operator()(int64_t row, int64_t c) const { return from[row * width + c]; }
};

template <class T>
struct Repeat {
  const T* from;
  int64_t width;
  __device__ T operator()(int64_t i) const { return from[i % width]; }
};

}  // namespace

void bias_forward(Cuda device, const Tensor& bias, const Tensor& y) {
  dispatch_float(y.dtype(), "bias", [&]<class T>() {
    generate(device, "bias", y.numel(), Repeat<T>{bias.cuda_data<T>(), bias.numel()}, y.cuda_data<T>());
  });
}

void bias_backward(Cuda device, const Tensor& dy, const Tensor& db) {
  dispatch_float(dy.dtype(), "bias", [&]<class T>() {
    const int64_t width = db.numel();
    column_sums(device, "bias", dy.numel() / width, width, Element<T>{dy.cuda_data<T>(), width},
                db.cuda_data<compute_t<T>>());
  });
}

}  // namespace godwit
