#include "autograd/ops/scale.h"
#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

template <class C>
struct Times {
  C factor;
  __device__ C operator()(C x) const { return factor * x; }
};

}  // namespace

void scale_forward(Cuda device, const Tensor& x, double factor, const Tensor& y) {
  check_like(y, x, "scale", "y");
  dispatch_float(x.dtype(), "scale", [&]<class T>() {
    using C = compute_t<T>;
    elementwise(device, "scale", x.numel(), Times<C>{static_cast<C>(factor)}, y.cuda_data<T>(), x.cuda_data<T>());
  });
}

}  // namespace godwit
