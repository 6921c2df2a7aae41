#include "autograd/ops/prepend_token.h"

#include "autograd/ops/bias.h"
#include "engine/vector_loop.h"

namespace godwit {

void prepend_token_forward(Cpu, const Tensor& x, const Tensor& token, const Tensor& positions, const Tensor& y) {
  const int64_t length = y.dim(1), width = y.dim(2);
  dispatch_float(x.dtype(), "prepend_token", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    const C *first = token.data<C>(), *position = positions.data<C>();
    T* to = y.data<T>();
    compute_for(y.dim(0) * length, std::max<int64_t>(1, (1 << 14) / (width + 1)),
                [=](int64_t begin, int64_t end) GODWIT_INLINE {
                  for (int64_t row = begin; row < end; ++row) {
                    const int64_t i = row % length;
                    const C* add = position + i * width;
                    T* out = to + row * width;
                    if (i == 0) {
                      for (int64_t k = 0; k < width; ++k) out[k] = static_cast<T>(first[k] + add[k]);
                    } else {
                      const T* in = from + (row - row / length - 1) * width;
                      for (int64_t k = 0; k < width; ++k) out[k] = static_cast<T>(C(in[k]) + add[k]);
                    }
                  }
                });
  });
}

void prepend_token_backward(Cpu, const Tensor& dy, const Tensor& dx) {
  const int64_t length = dx.dim(1), width = dx.dim(2);
  dispatch_float(dy.dtype(), "prepend_token", [&]<class T>() {
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(dx.dim(0) * length, std::max<int64_t>(1, (1 << 14) / (width + 1)), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        std::copy_n(from + (row + row / length + 1) * width, width, to + row * width);
    });
  });
}

Var ops::prepend_token(const Var& x, const Var& token, const Var& positions) {
  check(x.shape().rank() == 3, "prepend_token: x must be [n, length, width], got ", x.shape());
  const int64_t n = x.dim(0), length = x.dim(1) + 1, width = x.dim(2);
  const DType type = compute_dtype(x.dtype());
  check(n > 0 && width > 0, "prepend_token: nothing to compute, x is ", x.shape());
  const auto check_parameter = [&](const Var& v, int64_t rows, const char* name) {
    const int rank = v.shape().rank();
    check(v.value().numel() == rows * width && rank > 0 && v.dim(rank - 1) == width, "prepend_token: ", name,
          " must be ", Shape{rows, width}, " as x is ", x.shape(), ", got ", v.shape());
    check(v.dtype() == type, "prepend_token: x is ", x.dtype(), ", ", name, " must be ", type, ", got ", v.dtype());
  };
  check_parameter(token, 1, "token");
  check_parameter(positions, length, "positions");
  const Tensor y({n, length, width}, x.dtype(), x.device());
  on_device(y, [&](auto device) { prepend_token_forward(device, x.value(), token.value(), positions.value(), y); });
  return Var::result(y, {x, token, positions},
                     [dx = x.gradient(), d_token = token.gradient(), d_positions = positions.gradient(),
                      token_shape = token.shape(), positions_shape = positions.shape(), type](const Tensor& dy) {
                       const int64_t images = dy.dim(0), tokens = dy.dim(1), columns = dy.dim(2);
                       if (d_token || d_positions) {  // token and first position have the same gradient
                         const Tensor sum({tokens, columns}, type, dy.device());
                         on_device(dy, [&](auto device) {
                           bias_backward(device, dy.view({images, tokens * columns}), sum.view({tokens * columns}));
                         });
                         if (d_token) d_token.add(sum.rows(0, 1).view(token_shape));
                         if (d_positions) d_positions.add(sum.view(positions_shape));
                       }
                       if (dx) {
                         const Tensor g = dx.target();
                         on_device(dy, [&](auto device) { prepend_token_backward(device, dy, g); });
                         dx.add(g);
                       }
                     });
}

}  // namespace godwit
