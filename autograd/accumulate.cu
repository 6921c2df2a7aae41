#include "autograd/accumulate.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/reduce.h"

namespace godwit {

void accumulate(Cuda device, const Tensor& x, const Tensor& y) {
  check_like(x, y, "accumulate", "x");
  dispatch_float(x.dtype(), "accumulate", [&]<class T>() {
    T* to = y.cuda_data<T>();
    elementwise(device, "accumulate", x.numel(), Plus{}, to, to, x.cuda_data<T>());
  });
}

}  // namespace godwit
