// Global average pooling, per channel: [n, h, w, c] to [n, c].
#pragma once
#include "autograd/var.h"

namespace godwit {

void global_avg_pool_forward(Cpu, const Tensor& x, const Tensor& y);  // y [n, c] = mean of x over h and w
void global_avg_pool_forward(Cuda, const Tensor& x, const Tensor& y);
void global_avg_pool_backward(Cpu, const Tensor& dy, const Tensor& dx);  // dx = dy / (h · w) at each pixel
void global_avg_pool_backward(Cuda, const Tensor& dy, const Tensor& dx);

namespace ops {

// Mean over the pixels: x [n, h, w, c] to [n, c]. Throws if x is not an image or has no pixels.
inline Var global_avg_pool(const Var& x) {
  check(x.shape().rank() == 4, "global_avg_pool: x must be [n, h, w, c], got ", x.shape());
  check(x.dim(1) > 0 && x.dim(2) > 0, "global_avg_pool: x must have pixels, got ", x.shape());
  Tensor y({x.dim(0), x.dim(3)}, x.dtype(), x.device());
  on_device(y, [&](auto device) { global_avg_pool_forward(device, x.value(), y); });
  return Var::result(y, {x}, [dx = x.gradient()](const Tensor& dy) {
    Tensor g = dx.target();
    on_device(dy, [&](auto device) { global_avg_pool_backward(device, dy, g); });
    dx.add(g);
  });
}

}  // namespace ops
}  // namespace godwit
