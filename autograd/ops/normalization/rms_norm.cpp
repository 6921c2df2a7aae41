#include "autograd/ops/normalization/rms_norm.h"

#include <cmath>

#include "engine/row_sum.h"

namespace godwit {
namespace {

// Rows per block. The gradient of gamma is summed in compute_t within a block and in float64 over the blocks.
constexpr int64_t kBlock = 32;

int64_t rms_grain(int64_t width) { return std::max<int64_t>(1, (1 << 14) / (width + 1)); }

}  // namespace

void rms_norm_forward(Cpu, const Tensor& x, const Tensor& gamma, double eps, const Tensor& y, const Tensor& inv_rms) {
  const int64_t width = x.dim(1);
  dispatch_float(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_t<T>;
    const T* all = x.data<T>();
    const C* scale = gamma.data<C>();
    T* out = y.data<T>();
    C* inverses = inv_rms.data<C>();
    const C share = C(1) / static_cast<C>(width), margin = static_cast<C>(eps);
    compute_for(x.dim(0), rms_grain(width), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = all + i * width;
        T* to = out + i * width;
        const C squares = row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE { return C(row[c]) * C(row[c]); });
        const C inv = 1 / std::sqrt(squares * share + margin);
        for (int64_t c = 0; c < width; ++c) to[c] = static_cast<T>(C(row[c]) * inv * scale[c]);
        inverses[i] = inv;
      }
    });
  });
}

// With x̂ = x · inv_rms and g = dy · gamma: dx = inv_rms · (g - x̂ · mean(g · x̂)), d_gamma = Σ dy · x̂.
void rms_norm_backward(Cpu, const Tensor& x, const Tensor& gamma, const Tensor& inv_rms, const Tensor& dy,
                       const Tensor& dx, const Tensor& d_gamma) {
  const int64_t n = x.dim(0), width = x.dim(1), blocks = (n + kBlock - 1) / kBlock;
  dispatch_float(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor partial = Tensor::zeros({blocks, width}, dtype_of<C>);
    const T *all = x.data<T>(), *from = dy.data<T>();
    const C *scale = gamma.data<C>(), *inverses = inv_rms.data<C>();
    C* sums = partial.data<C>();
    T* to = dx.data<T>();
    const C share = C(1) / static_cast<C>(width);
    compute_for(blocks, std::max<int64_t>(1, rms_grain(width) / kBlock), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t i = begin * kBlock; i < std::min(n, end * kBlock); ++i) {
        const T *row = all + i * width, *in = from + i * width;
        C* by_gamma = sums + i / kBlock * width;
        const C inv = inverses[i];
        GODWIT_IN_PLACE
        for (int64_t c = 0; c < width; ++c) by_gamma[c] += C(in[c]) * (C(row[c]) * inv);
        const C slope = inv * share * row_sum<C>(0, width, [=](int64_t c) GODWIT_INLINE {
                          return C(in[c]) * scale[c] * (C(row[c]) * inv);
                        });
        T* out = to + i * width;
        GODWIT_IN_PLACE
        for (int64_t c = 0; c < width; ++c)
          out[c] = static_cast<T>(inv * (C(in[c]) * scale[c]) - C(row[c]) * inv * slope);
      }
    });
    C* to_gamma = d_gamma.data<C>();
    compute_for(width, std::max<int64_t>(16, (1 << 15) / (blocks + 1)), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; ++b) sum += static_cast<double>(sums[b * width + c]);
        to_gamma[c] = static_cast<C>(sum);
      }
    });
  });
}

Var ops::rms_norm(const Var& x, const Var& gamma, double eps) {
  check(x.shape().rank() == 2 && x.dim(1) > 0, "rms_norm: x must be [n, width], got ", x.shape());
  const DType type = compute_dtype(x.dtype());
  check(gamma.shape() == Shape{x.dim(1)} && gamma.dtype() == type, "rms_norm: gamma must be ", type, " ",
        Shape{x.dim(1)}, ", got ", gamma.dtype(), " ", gamma.shape());
  check(eps >= 0 && std::isfinite(eps), "rms_norm: eps must be finite and not negative, got ", eps);
  const Tensor y(x.shape(), x.dtype(), x.device()), inv_rms({x.dim(0)}, type, x.device());
  on_device(y, [&](auto device) { rms_norm_forward(device, x.value(), gamma.value(), eps, y, inv_rms); });
  return Var::result(
      y, {x, gamma},
      [in = x.value(), scale = gamma.value(), inv_rms, dx = x.gradient(),
       d_gamma = gamma.gradient()](const Tensor& dy) {
        const Tensor g = dy.shared() ? Tensor(in.shape(), in.dtype(), in.device()) : dy;
        const Tensor g_gamma = d_gamma ? d_gamma.target() : Tensor(scale.shape(), scale.dtype(), scale.device());
        on_device(in, [&](auto device) { rms_norm_backward(device, in, scale, inv_rms, dy, g, g_gamma); });
        if (dx) dx.add(g);
        if (d_gamma) d_gamma.add(g_gamma);
      });
}

}  // namespace godwit
