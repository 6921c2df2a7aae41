#include "autograd/ops/add.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

struct PlusRelu {
  template <class C>
  __device__ C operator()(C a, C b) const {
    const C sum = a + b;
    return sum < 0 ? C(0) : sum;
  }
};

template <class F>
void zip(Cuda device, const Tensor& a, const Tensor& b, const Tensor& y, const char* operation, F f) {
  check_like(b, a, operation, "b");
  check_like(y, a, operation, "y");
  dispatch_float(a.dtype(), operation, [&]<class T>() {
    elementwise(device, operation, a.numel(), f, y.cuda_data<T>(), a.cuda_data<T>(), b.cuda_data<T>());
  });
}

}  // namespace

void add_forward(Cuda device, const Tensor& a, const Tensor& b, const Tensor& y) {
  zip(device, a, b, y, "add", Plus{});
}

void add_relu_forward(Cuda device, const Tensor& a, const Tensor& b, const Tensor& y) {
  zip(device, a, b, y, "add_relu", PlusRelu{});
}

}  // namespace godwit
