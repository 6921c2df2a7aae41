#include "autograd/ops/linear.h"

#include "autograd/accumulate.h"
#include "autograd/ops/bias.h"
#include "autograd/ops/kernel_weights.h"
#include "autograd/ops/linear_kernels.h"
#include "engine/gemm.h"

namespace godwit {

// If the library has no kernel, gemm() is used, in float32 for bfloat16.
void linear_forward(Cpu, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  if (x.dtype() != DType::f64 && detail::library_linear_forward(x, w, bias, y)) return;
  if (x.dtype() == DType::bf16) {
    const Tensor wide(y.shape(), DType::f32, kCpu);
    linear_forward(Cpu{}, x.to(DType::f32), w, bias, wide);
    return y.copy_from(wide.to(DType::bf16));
  }
  if (bias.defined()) bias_forward(Cpu{}, bias, y);
  dispatch_real(x.dtype(), "linear", [&]<class T>() {
    const int64_t n = x.dim(0), in = w.dim(1), out = w.dim(0);
    gemm(Cpu{}, false, true, n, out, in, T{1}, x.data<T>(), in, w.data<T>(), in, T(bias.defined() ? 1 : 0), y.data<T>(),
         out);
  });
}

void linear_backward_data(Cpu, const Tensor& dy, const Tensor& w, const Tensor& dx, bool add) {
  if (add) {
    const Tensor product(dx.shape(), dx.dtype(), kCpu);
    linear_backward_data(Cpu{}, dy, w, product);
    return accumulate(Cpu{}, product, dx);
  }
  if (dy.dtype() != DType::f64 && detail::library_linear_backward_data(dy, w, dx)) return;
  if (dy.dtype() == DType::bf16) {
    const Tensor wide(dx.shape(), DType::f32, kCpu);
    linear_backward_data(Cpu{}, dy.to(DType::f32), w, wide);
    return dx.copy_from(wide.to(DType::bf16));
  }
  dispatch_real(dy.dtype(), "linear", [&]<class T>() {
    const int64_t n = dy.dim(0), in = w.dim(1), out = w.dim(0);
    gemm(Cpu{}, false, false, n, in, out, T{1}, dy.data<T>(), out, w.data<T>(), in, T{0}, dx.data<T>(), in);
  });
}

void linear_backward_weights(Cpu, const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& db) {
  if (db.defined()) bias_backward(Cpu{}, dy, db);
  if (x.dtype() != DType::f64 && detail::library_linear_backward_weights(x, dy, dw)) return;
  if (x.dtype() == DType::bf16)
    return linear_backward_weights(Cpu{}, x.to(DType::f32), dy.to(DType::f32), dw, Tensor());
  dispatch_real(x.dtype(), "linear", [&]<class T>() {
    const int64_t n = x.dim(0), in = dw.dim(1), out = dw.dim(0);
    gemm(Cpu{}, true, false, out, in, n, T{1}, dy.data<T>(), out, x.data<T>(), in, T{0}, dw.data<T>(), in);
  });
}

Var ops::linear(const Var& x, const Var& w, const Var& bias) {
  check(x.shape().rank() == 2, "linear: x must be [n, in], it is ", x.shape());
  check(w.shape().rank() == 2, "linear: weight must be [out, in], it is ", w.shape());
  check(x.dim(1) == w.dim(1), "linear: weight expects ", w.dim(1), " features, x is ", x.shape());
  check(x.value().numel() > 0 && w.value().numel() > 0, "linear: nothing to compute, x is ", x.shape(), ", weight ",
        w.shape());
  const DType type = compute_dtype(x.dtype());
  check(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f64,
        "linear: takes float32, bfloat16 or float64, x is ", x.dtype());
  check(w.dtype() == type, "linear: x is ", x.dtype(), ", weight must be ", type, ", it is ", w.dtype());
  if (bias.defined())
    check(bias.shape() == Shape{w.dim(0)} && bias.dtype() == type, "linear: bias must be ", type, " ", Shape{w.dim(0)},
          ", it is ", bias.dtype(), " ", bias.shape());
  Tensor y({x.dim(0), w.dim(0)}, x.dtype(), x.device());
  const Tensor given = w.value(), weights = kernel_weights(given, x.dtype());
  on_device(
      y, [&](auto device) { linear_forward(device, x.value(), weights, bias.defined() ? bias.value() : Tensor(), y); });
  return Var::result(y, {x, w, bias},
                     [xv = w.requires_grad() ? x.value() : Tensor(),
                      wv = x.requires_grad() ? kept_weights(given, weights) : Tensor(), dx = x.gradient(),
                      dw = w.gradient(), db = bias.gradient()](const Tensor& dy) {
                       if (dw || db) {
                         const Tensor gw = dw ? dw.target() : Tensor(), gb = db ? db.target() : Tensor();
                         on_device(dy, [&](auto device) {
                           if (dw) linear_backward_weights(device, xv, dy, gw, gb);
                           else bias_backward(device, dy, gb);
                         });
                         if (dw) dw.add(gw);
                         if (db) db.add(gb);
                       }
                       if (dx) {
                         const Tensor sum = dx.accumulator(), g = sum.defined() ? sum : dx.target();
                         on_device(dy, [&](auto device) { linear_backward_data(device, dy, wv, g, sum.defined()); });
                         if (!sum.defined()) dx.add(g);
                       }
                     });
}

}  // namespace godwit
