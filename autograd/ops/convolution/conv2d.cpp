#include "autograd/ops/convolution/conv2d.h"

#include "autograd/ops/convolution/conv2d_kernels.h"
#include "autograd/ops/kernel_weights.h"

namespace godwit {

Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dOptions& options) {
  const auto [stride, padding, dilation, groups] = options;
  check(x.rank() == 4, "conv2d: images must be [n, h, w, c], x is ", x);
  check(w.rank() == 4, "conv2d: filters must be [out, kh, kw, in], weight is ", w);
  check(stride >= 1 && padding >= 0 && dilation >= 1 && groups >= 1, "conv2d: stride, dilation and groups must be at ",
        "least 1 and padding at least 0; stride is ", stride, ", padding ", padding, ", dilation ", dilation,
        ", groups ", groups);
  check(x.numel() > 0, "conv2d: x is empty, ", x);
  check(w.numel() > 0, "conv2d: weight is empty, ", w);
  check(x[3] == w[3] * groups, "conv2d: weight expects ", w[3] * groups, " input channels, x is ", x);
  check(w[0] % groups == 0, "conv2d: ", w[0], " output channels do not divide into ", groups, " groups");
  // Copies, because clang 14 cannot capture structured bindings.
  const auto extent = [&, stride = stride, padding = padding, dilation = dilation](int64_t size, int64_t kernel,
                                                                                   const char* name) {
    const int64_t seen = int64_t{dilation} * (kernel - 1) + 1, padded = size + 2 * int64_t{padding};
    check(seen <= padded, "conv2d: the filter spans ", seen, " pixels, but the padded ", name, " of x is ", padded,
          "; x is ", x, ", weight ", w, ", padding ", padding, ", dilation ", dilation);
    return (padded - seen) / stride + 1;
  };
  const int64_t ho = extent(x[1], w[1], "height"), wo = extent(x[2], w[2], "width");
  return {x[0], x[1], x[2], x[3], w[0], w[1], w[2], ho, wo, stride, padding, dilation, groups};
}

// If the library has no bfloat16 kernel, the convolution is computed in float32.
void conv2d_forward(Cpu, const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  if (x.dtype() == DType::f64) return detail::Im2col<double>(s).forward(x, w, bias, y);
  if (detail::conv2d_forward_library(s, x, w, bias, y)) return;
  const Tensor wide(y.shape());
  conv2d_forward(Cpu{}, s, x.to(DType::f32), w, bias, wide);
  y.copy_from(wide.to(y.dtype()));
}

void conv2d_backward_data(Cpu, const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx) {
  if (dy.dtype() == DType::f64) return detail::Im2col<double>(s).backward_data(dy, w, dx);
  if (detail::conv2d_backward_data_library(s, dy, w, dx)) return;
  const Tensor wide(dx.shape());
  conv2d_backward_data(Cpu{}, s, dy.to(DType::f32), w, wide);
  dx.copy_from(wide.to(dx.dtype()));
}

void conv2d_backward_weights(Cpu, const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             const Tensor& db) {
  if (x.dtype() == DType::f64) return detail::Im2col<double>(s).backward_weights(x, dy, dw, db);
  if (detail::conv2d_backward_weights_library(s, x, dy, dw, db)) return;
  conv2d_backward_weights(Cpu{}, s, x.to(DType::f32), dy.to(DType::f32), dw, db);
}

Var ops::conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options) {
  const Conv2dShape s = conv2d_shape(x.shape(), w.shape(), options);
  const DType type = compute_dtype(x.dtype());
  check(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f64,
        "conv2d: takes float32, bfloat16 or float64, x is ", x.dtype());
  check(w.dtype() == type, "conv2d: x is ", x.dtype(), ", weight must be ", type, ", got ", w.dtype());
  if (bias.defined())
    check(bias.shape() == Shape{s.o} && bias.dtype() == type, "conv2d: bias must be ", type, " ", Shape{s.o}, ", got ",
          bias.dtype(), " ", bias.shape());
  Tensor y({s.n, s.ho, s.wo, s.o}, x.dtype(), x.device());
  const Tensor wv = w.value(), weights = kernel_weights(wv, x.dtype());
  on_device(y, [&](auto device) {
    conv2d_forward(device, s, x.value(), weights, bias.defined() ? bias.value() : Tensor(), y);
  });
  return Var::result(y, {x, w, bias},
                     [s, wv, xv = w.requires_grad() || bias.requires_grad() ? x.value() : Tensor(),
                      kept = x.requires_grad() ? kept_weights(wv, weights) : Tensor(), dx = x.gradient(),
                      dw = w.gradient(), db = bias.gradient()](const Tensor& dy) {
                       if (dw || db) {
                         const Tensor gw = dw ? dw.target() : Tensor(wv.shape(), wv.dtype(), wv.device());
                         const Tensor gb = db ? db.target() : Tensor();
                         on_device(dy, [&](auto device) { conv2d_backward_weights(device, s, xv, dy, gw, gb); });
                         if (dw) dw.add(gw);
                         if (db) db.add(gb);
                       }
                       if (dx) {
                         const Tensor gx = dx.target();
                         on_device(dy, [&](auto device) { conv2d_backward_data(device, s, dy, kept, gx); });
                         dx.add(gx);
                       }
                     });
}

}  // namespace godwit
