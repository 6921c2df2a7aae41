#include "optim/ema.h"

#include "engine/cuda/update.h"

namespace godwit::detail {
namespace {

template <class T>
struct Follow {
  T weight;
  __device__ void operator()(int64_t, T& a, T x) const { a = a + weight * (x - a); }
};

struct Exchange {
  template <class T>
  __device__ void operator()(int64_t, T& a, T& b) const {
    const T before = a;
    a = b;
    b = before;
  }
};

}  // namespace

void follow(Cuda device, const Tensor& values, const Tensor& averages, double weight) {
  dispatch_real(values.dtype(), "ema", [&]<class T>() {
    update_each(device, "ema", 0, values.numel(), Follow<T>{static_cast<T>(weight)}, averages.cuda_data<T>(),
                static_cast<const T*>(values.cuda_data<T>()));
  });
}

void exchange(Cuda device, const Tensor& x, const Tensor& y) {
  dispatch_real(x.dtype(), "ema", [&]<class T>() {
    update_each(device, "ema", 0, x.numel(), Exchange{}, x.cuda_data<T>(), y.cuda_data<T>());
  });
}

}  // namespace godwit::detail
