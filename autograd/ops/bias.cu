#include "autograd/ops/bias.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

template <class T>
struct Elements {
  static constexpr int kSums = 1;
  const T* from;
  int64_t width;
  template <int n>
  __device__ void operator()(int64_t row, int64_t c, double (&sums)[1][n]) const {
    const auto values = detail::load_pack<n>(from + row * width + c, 0);
    for (int k = 0; k < n; ++k) sums[0][k] += static_cast<double>(compute_t<T>(values.values[k]));
  }
};

template <class T>
struct Repeat {
  const T* from;
  template <int n>
  __device__ void operator()(uint32_t, uint32_t c, T (&values)[n]) const {
    const auto bias = load_any<n>(from + c);
    for (int k = 0; k < n; ++k) values[k] = bias.values[k];
  }
};

}  // namespace

void bias_forward(Cuda device, const Tensor& bias, const Tensor& y) {
  dispatch_float(y.dtype(), "bias", [&]<class T>() {
    const int64_t width = bias.numel(), rows = width > 0 ? y.numel() / width : 0;
    generate_rows(device, "bias", rows, width, width, Repeat<T>{bias.cuda_data<T>()}, y.cuda_data<T>());
  });
}

void bias_backward(Cuda device, const Tensor& dy, const Tensor& db) {
  dispatch_float(dy.dtype(), "bias", [&]<class T>() {
    const int64_t width = db.numel();
    const T* from = dy.cuda_data<T>();
    column_sums<T, Elements<T>, compute_t<T>>(device, "bias", dy.numel() / width, width, {from, width},
                                              {db.cuda_data<compute_t<T>>()}, {from});
  });
}

}  // namespace godwit
