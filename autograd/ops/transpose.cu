#include "autograd/ops/transpose.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

// Element `at` of y [n, b, a] from x [n, a, b].
template <class T>
struct Transposed {
  int64_t a, b;
  const T* x;
  __device__ T operator()(int64_t at) const { return x[(at / (a * b) * a + at % a) * b + at / a % b]; }
};

}  // namespace

void transpose_forward(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), "transpose", [&]<class T>() {
    generate(device, "transpose", y.numel(), Transposed<T>{x.dim(1), x.dim(2), x.cuda_data<T>()}, y.cuda_data<T>());
  });
}

}  // namespace godwit
