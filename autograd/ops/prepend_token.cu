#include "autograd/ops/prepend_token.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

template <class T>
struct Prepended {
  using C = compute_t<T>;
  uint32_t length, width;  // extents of y
  const T* x;
  const C *token, *positions;
  template <int n>
  __device__ void operator()(uint32_t row, uint32_t c, T (&values)[n]) const {
    const uint32_t image = row / length, i = row - image * length;
    const auto position = load_any<n>(positions + int64_t{i} * width + c);
    if (i == 0) {
      const auto first = load_any<n>(token + c);
      for (int k = 0; k < n; ++k) values[k] = static_cast<T>(first.values[k] + position.values[k]);
    } else {
      const auto from = detail::load_pack<n>(x + int64_t{row - image - 1} * width + c, 0);
      for (int k = 0; k < n; ++k) values[k] = static_cast<T>(C(from.values[k]) + position.values[k]);
    }
  }
};

template <class T>
struct WithoutFirst {
  uint32_t length, width;  // extents of dx
  const T* dy;
  template <int n>
  __device__ void operator()(uint32_t row, uint32_t c, T (&values)[n]) const {
    const auto from = detail::load_pack<n>(dy + int64_t{row + row / length + 1} * width + c, 0);
    for (int k = 0; k < n; ++k) values[k] = from.values[k];
  }
};

}  // namespace

void prepend_token_forward(Cuda device, const Tensor& x, const Tensor& token, const Tensor& positions,
                           const Tensor& y) {
  dispatch_float(x.dtype(), "prepend_token", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.cuda_data<T>();
    const uint32_t length = index_count("prepend_token", y.dim(1)), width = index_count("prepend_token", y.dim(2));
    generate_rows(device, "prepend_token", y.dim(0) * length, width, width,
                  Prepended<T>{length, width, from, token.cuda_data<C>(), positions.cuda_data<C>()}, y.cuda_data<T>(),
                  from);
  });
}

void prepend_token_backward(Cuda device, const Tensor& dy, const Tensor& dx) {
  dispatch_float(dy.dtype(), "prepend_token", [&]<class T>() {
    const T* from = dy.cuda_data<T>();
    const uint32_t length = index_count("prepend_token", dx.dim(1)), width = index_count("prepend_token", dx.dim(2));
    generate_rows(device, "prepend_token", dx.dim(0) * length, width, width, WithoutFirst<T>{length, width, from},
                  dx.cuda_data<T>(), from);
  });
}

}  // namespace godwit
