#include "autograd/ops/linear.h"

#include "autograd/accumulate.h"
#include "autograd/ops/bias.h"
#include "autograd/ops/linear_kernels.h"
#include "engine/gemm.h"

namespace godwit {

using detail::Tensors;

// If the library has no kernel, gemm() is used, in float32 for bfloat16.
void linear_forward(Cpu, const Tensor& x, const Tensors& w, const Tensors& bias, const Tensor& y) {
  const Tensor b = detail::given(bias) ? detail::joined(bias) : Tensor();
  if (x.dtype() != DType::f64 && detail::library_linear_forward(x, w, b, y)) return;
  if (x.dtype() == DType::bf16) {
    const Tensor wide(y.shape(), DType::f32, kCpu);
    linear_forward(Cpu{}, x.to(DType::f32), w, bias, wide);
    return y.copy_from(wide.to(DType::bf16));
  }
  if (b.defined()) bias_forward(Cpu{}, b, y);
  dispatch_real(x.dtype(), "linear", [&]<class T>() {
    const int64_t n = x.dim(0), in = x.dim(1), width = y.dim(1);
    T* to = y.data<T>();
    for (const Tensor& part : w) {
      const int64_t out = part.dim(0);
      gemm(Cpu{}, false, true, n, out, in, T{1}, x.data<T>(), in, part.data<T>(), in, T(b.defined() ? 1 : 0), to,
           width);
      to += out;
    }
  });
}

void linear_backward_data(Cpu, const Tensor& dy, const Tensors& w, const Tensor& dx, bool add) {
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
    const int64_t n = dy.dim(0), in = dx.dim(1), width = dy.dim(1);
    const T* from = dy.data<T>();
    for (const Tensor& part : w) {
      const int64_t out = part.dim(0);
      gemm(Cpu{}, false, false, n, in, out, T{1}, from, width, part.data<T>(), in, T(&part == &w[0] ? 0 : 1),
           dx.data<T>(), in);
      from += out;
    }
  });
}

void linear_backward_weights(Cpu, const Tensor& x, const Tensor& dy, const Tensors& dw, const Tensors& db) {
  if (detail::given(db)) detail::joined_bias_backward(Cpu{}, dy, db);
  if (x.dtype() != DType::f64 && detail::library_linear_backward_weights(x, dy, dw)) return;
  if (x.dtype() == DType::bf16)
    return linear_backward_weights(Cpu{}, x.to(DType::f32), dy.to(DType::f32), dw, {});
  dispatch_real(x.dtype(), "linear", [&]<class T>() {
    const int64_t n = x.dim(0), in = x.dim(1), width = dy.dim(1);
    const T* from = dy.data<T>();
    for (const Tensor& part : dw) {
      const int64_t out = part.dim(0);
      gemm(Cpu{}, true, false, out, in, n, T{1}, from, width, x.data<T>(), in, T{0}, part.data<T>(), in);
      from += out;
    }
  });
}

namespace {

void check_layers(const Var& x, const std::vector<LinearParameters>& layers) {
  check(x.shape().rank() == 2, "linear: x must be [n, in], got ", x.shape());
  check(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f64,
        "linear: takes float32, bfloat16 or float64, x is ", x.dtype());
  check(!layers.empty(), "joined_linear: there must be at least one layer");
  const DType type = compute_dtype(x.dtype());
  const auto& [first_w, first_bias] = layers[0];
  for (const auto& [w, bias] : layers) {
    check(w.shape().rank() == 2, "linear: weight must be [out, in], got ", w.shape());
    check(x.dim(1) == w.dim(1), "linear: weight expects ", w.dim(1), " features, x is ", x.shape());
    check(x.dim(0) > 0 && w.dim(0) > 0 && w.dim(1) > 0, "linear: nothing to compute, x is ", x.shape(), ", weight ",
          w.shape());
    check(w.dtype() == type, "linear: x is ", x.dtype(), ", weight must be ", type, ", got ", w.dtype());
    if (bias.defined())
      check(bias.shape() == Shape{w.dim(0)} && bias.dtype() == type, "linear: bias must be ", type, " ",
            Shape{w.dim(0)}, ", got ", bias.dtype(), " ", bias.shape());
    check(bias.defined() == first_bias.defined(), "joined_linear: all layers must have a bias, or none");
    check(w.requires_grad() == first_w.requires_grad() && bias.requires_grad() == first_bias.requires_grad(),
          "joined_linear: all weights must require a gradient, or none, and all biases");
    for (const LinearParameters& other : layers) {
      if (&other.weight == &w) continue;
      check(!(other.weight == w), "joined_linear: a weight ", w.shape(), " occurs twice");
      if (bias.defined()) check(!(other.bias == bias), "joined_linear: a bias ", bias.shape(), " occurs twice");
    }
  }
}

Tensors targets_of(const std::vector<Gradient>& gradients) {
  Tensors targets;
  for (const Gradient& gradient : gradients) targets.push_back(gradient.target());
  return targets;
}

}  // namespace

Var ops::linear(const Var& x, const Var& w, const Var& bias) { return joined_linear(x, {{w, bias}}); }

Var ops::joined_linear(const Var& x, const std::vector<LinearParameters>& layers) {
  check_layers(x, layers);
  std::vector<Var> inputs{x};
  Tensors given, biases;
  std::vector<Gradient> dw, db;
  int64_t width = 0;
  for (const auto& [w, bias] : layers) {
    inputs.insert(inputs.end(), {w, bias});
    given.push_back(w.value());
    if (bias.defined()) biases.push_back(bias.value());
    if (const Gradient g = w.gradient()) dw.push_back(g);
    if (const Gradient g = bias.gradient()) db.push_back(g);
    width += w.dim(0);
  }
  const Tensor y({x.dim(0), width}, x.dtype(), x.device());
  Tensors kept;  // the weights, separate or joined, see kept_weights()
  on_device(y, [&](auto device) {
    const Tensors weights = detail::kernel_parts(device, given, x.dtype());
    linear_forward(device, x.value(), weights, biases, y);
    if (x.requires_grad()) kept = given[0].attachable() ? given : weights;
  });
  return Var::result(
      y, inputs, [xv = dw.empty() ? Tensor() : x.value(), kept, dx = x.gradient(), dw, db](const Tensor& dy) {
        const Tensors gw = targets_of(dw), gb = targets_of(db);
        on_device(dy, [&](auto device) {
          if (!gw.empty()) linear_backward_weights(device, xv, dy, gw, gb);
          else if (!gb.empty()) detail::joined_bias_backward(device, dy, gb);
        });
        for (size_t i = 0; i < gw.size(); ++i) dw[i].add(gw[i]);
        for (size_t i = 0; i < gb.size(); ++i) db[i].add(gb[i]);
        if (!dx) return;
        const Tensor sum = dx.accumulator(), g = sum.defined() ? sum : dx.target();
        on_device(dy, [&](auto device) { linear_backward_data(device, dy, kept, g, sum.defined()); });
        if (!sum.defined()) dx.add(g);
      });
}

}  // namespace godwit
