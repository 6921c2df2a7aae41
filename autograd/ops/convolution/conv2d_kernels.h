// Kernels of the build's library, and im2col kernels for any type. Only conv2d*.cpp includes this header.
#pragma once
#include <algorithm>

#include "autograd/ops/bias.h"
#include "autograd/ops/convolution/conv2d.h"
#include "engine/gemm.h"
#include "engine/parallel.h"

namespace godwit::detail {

// Images and their gradients are float32 or bfloat16; w, bias, dw and db are float32. Returns false without any effect
// if the library has no bfloat16 kernel.
bool conv2d_forward_library(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias,
                            const Tensor& y);
bool conv2d_backward_data_library(const Conv2dShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx);
bool conv2d_backward_weights_library(const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                                     const Tensor& db);

// Convolution as matrix products. For each group, row (image, oy, ox) of the matrix `columns` contains the
// kh·kw·(c/groups) inputs of that output position. The number of images per product depends only on the extents, so
// that sums do not depend on the thread count.
template <class T>
class Im2col {
 public:
  explicit Im2col(const Conv2dShape& s)
      : s_(s),
        cg_(s.c / s.groups),
        og_(s.o / s.groups),
        k_(s.kh * s.kw * cg_),
        positions_(s.ho * s.wo),
        images_(std::clamp<int64_t>((int64_t{1} << 20) / (positions_ * k_), 1, s.n)),
        direct_(s.kh == 1 && s.kw == 1 && s.stride == 1 && s.padding == 0) {
    if (!direct_) columns_ = Tensor({images_ * positions_, k_}, dtype_of<T>);
  }

  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
    if (bias.defined()) bias_forward(Cpu{}, bias, y);
    const T beta = bias.defined() ? 1 : 0;
    each([&](int64_t image, int64_t rows, int64_t group) {
      const T* columns = gather(x.data<T>(), image, rows, group);
      gemm(Cpu{}, false, true, rows, og_, k_, T{1}, columns, ld(), w.data<T>() + group * og_ * k_, k_, beta,
           result(y, image, group), s_.o);
    });
  }

  void backward_data(const Tensor& dy, const Tensor& w, const Tensor& dx) {
    each([&](int64_t image, int64_t rows, int64_t group) {
      T* to = dx.data<T>() + image * s_.h * s_.w * s_.c + group * cg_;
      gemm(Cpu{}, false, false, rows, k_, og_, T{1}, result(dy, image, group), s_.o, w.data<T>() + group * og_ * k_, k_,
           T{0}, direct_ ? to : columns_.data<T>(), ld());
      if (!direct_) scatter(to, rows / positions_);
    });
  }

  void backward_weights(const Tensor& x, const Tensor& dy, const Tensor& dw, const Tensor& db) {
    if (db.defined()) bias_backward(Cpu{}, dy, db);
    each([&](int64_t image, int64_t rows, int64_t group) {
      const T* columns = gather(x.data<T>(), image, rows, group);
      gemm(Cpu{}, true, false, og_, k_, rows, T{1}, result(dy, image, group), s_.o, columns, ld(),
           image == 0 ? T{0} : T{1}, dw.data<T>() + group * og_ * k_, k_);
    });
  }

 private:
  // Calls f(first image, number of output positions of the batch, group) for all batches and groups.
  template <class F>
  void each(F&& f) {
    for (int64_t image = 0; image < s_.n; image += images_)
      for (int64_t group = 0; group < s_.groups; ++group) f(image, std::min(images_, s_.n - image) * positions_, group);
  }

  int64_t ld() const { return direct_ ? s_.c : k_; }
  T* result(const Tensor& y, int64_t image, int64_t group) const {
    return y.data<T>() + image * positions_ * s_.o + group * og_;
  }

  // Returns the columns of `rows` rows, starting at `image`. Returns the images themselves if no copy is needed (1×1
  // filters).
  const T* gather(const T* x, int64_t image, int64_t rows, int64_t group) {
    x += image * s_.h * s_.w * s_.c + group * cg_;
    if (direct_) return x;
    T* columns = columns_.data<T>();
    parallel_for(rows, std::max<int64_t>(1, (1 << 15) / k_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) gather_row(x, row, columns + row * k_);
    });
    return columns;
  }

  void gather_row(const T* x, int64_t row, T* to) const {
    const int64_t image = row / positions_, oy = row % positions_ / s_.wo, ox = row % s_.wo;
    for (int64_t ky = 0; ky < s_.kh; ++ky)
      for (int64_t kx = 0; kx < s_.kw; ++kx, to += cg_) {
        const int64_t iy = oy * s_.stride - s_.padding + ky * s_.dilation;
        const int64_t ix = ox * s_.stride - s_.padding + kx * s_.dilation;
        if (iy < 0 || iy >= s_.h || ix < 0 || ix >= s_.w) std::fill_n(to, cg_, T{0});
        else std::copy_n(x + ((image * s_.h + iy) * s_.w + ix) * s_.c, cg_, to);
      }
  }

  // Transpose of gather(): each input sums the column entries that contain it, in the order of the filter taps.
  void scatter(T* to, int64_t images) const {
    parallel_for(images * s_.h, std::max<int64_t>(1, (1 << 15) / (s_.w * k_)), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line)
        for (int64_t ix = 0; ix < s_.w; ++ix) scatter_pixel(to, line / s_.h, line % s_.h, ix);
    });
  }

  void scatter_pixel(T* to, int64_t image, int64_t iy, int64_t ix) const {
    to += ((image * s_.h + iy) * s_.w + ix) * s_.c;
    std::fill_n(to, cg_, T{0});
    for (int64_t ky = 0; ky < s_.kh; ++ky)
      for (int64_t kx = 0; kx < s_.kw; ++kx) {
        const int64_t y = iy + s_.padding - ky * s_.dilation, x = ix + s_.padding - kx * s_.dilation;
        if (y < 0 || x < 0 || y % s_.stride || x % s_.stride) continue;
        const int64_t oy = y / s_.stride, ox = x / s_.stride;
        if (oy >= s_.ho || ox >= s_.wo) continue;
        const T* from = columns_.data<T>() + (image * positions_ + oy * s_.wo + ox) * k_ + (ky * s_.kw + kx) * cg_;
        for (int64_t i = 0; i < cg_; ++i) to[i] += from[i];
      }
  }

  Conv2dShape s_;
  int64_t cg_, og_, k_, positions_, images_;
  bool direct_;
  Tensor columns_;
};

}  // namespace godwit::detail
