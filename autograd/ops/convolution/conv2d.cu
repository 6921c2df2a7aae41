#include "autograd/ops/bias.h"
#include "autograd/ops/convolution/conv2d.h"
#include "autograd/ops/kernel_weights.h"
#include "engine/context.h"
#include "engine/cuda/dnn.h"
#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

// Indices of a pixel of memory [.., rows, columns].
struct ConvPlace {
  uint32_t image, row, column;
  __device__ ConvPlace(uint32_t pixel, int64_t rows, int64_t columns)
      : image(pixel / static_cast<uint32_t>(columns) / static_cast<uint32_t>(rows)),
        row(pixel / static_cast<uint32_t>(columns) % static_cast<uint32_t>(rows)),
        column(pixel % static_cast<uint32_t>(columns)) {}
};

// Offset in x of tap (i, j) of window (r, o), or -1 for padding.
__device__ int64_t pixel(const Conv2dShape& s, int64_t image, int64_t r, int64_t o, int64_t i, int64_t j) {
  const int64_t row = r * s.stride + i * s.dilation - s.padding, column = o * s.stride + j * s.dilation - s.padding;
  if (row < 0 || row >= s.h || column < 0 || column >= s.w) return -1;
  return ((image * s.h + row) * s.w + column) * s.c;
}

// Plain loops: one thread per element of y.
template <class T>
struct Correlated {
  Conv2dShape s;
  const T *x, *w;
  uint32_t in, out;  // channels of a group
  template <int n>
  __device__ void operator()(uint32_t window, uint32_t channel, T (&values)[n]) const {
    const ConvPlace p(window, s.ho, s.wo);
    for (int k = 0; k < n; ++k) values[k] = static_cast<T>(correlation(p, channel + k));
  }
  __device__ compute_t<T> correlation(const ConvPlace& p, uint32_t channel) const {
    const int64_t first = channel / out * in;
    const T* tap = w + channel * s.kh * s.kw * in;
    compute_t<T> sum = 0;
    for (int64_t i = 0; i < s.kh; ++i)
      for (int64_t j = 0; j < s.kw; ++j, tap += in) {
        const int64_t from = pixel(s, p.image, p.row, p.column, i, j);
        if (from < 0) continue;
        for (int64_t c = 0; c < in; ++c) sum += compute_t<T>(x[from + first + c]) * compute_t<T>(tap[c]);
      }
    return sum;
  }
};

// One thread per element of dx: sums over the windows that contain it.
template <class T>
struct DataGradient {
  Conv2dShape s;
  const T *dy, *w;
  uint32_t in, out;  // channels of a group
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t channel, T (&values)[n]) const {
    const ConvPlace p(pixel, s.h, s.w);
    for (int k = 0; k < n; ++k) values[k] = static_cast<T>(gradient(p, channel + k));
  }
  __device__ compute_t<T> gradient(const ConvPlace& p, uint32_t channel) const {
    const int64_t first = channel / in * out, c = channel % in;
    const auto stride = static_cast<uint32_t>(s.stride);
    compute_t<T> sum = 0;
    for (int64_t i = 0; i < s.kh; ++i)
      for (int64_t j = 0; j < s.kw; ++j) {
        const int64_t row = p.row + s.padding - i * s.dilation, column = p.column + s.padding - j * s.dilation;
        if (row < 0 || column < 0) continue;
        const int64_t r = static_cast<uint32_t>(row) / stride, o = static_cast<uint32_t>(column) / stride;
        if (row != r * stride || column != o * stride || r >= s.ho || o >= s.wo) continue;
        const T* from = dy + ((p.image * s.ho + r) * s.wo + o) * s.o;
        for (int64_t k = first; k < first + out; ++k)
          sum += compute_t<T>(from[k]) * compute_t<T>(w[((k * s.kh + i) * s.kw + j) * in + c]);
      }
    return sum;
  }
};

// One block per element of dw.
template <class T>
__global__ void conv_filter_gradient_kernel(Conv2dShape s, uint32_t windows, const T* x, const T* dy,
                                            compute_t<T>* dw) {
  using C = compute_t<T>;
  const auto in = static_cast<uint32_t>(s.c / s.groups), out = static_cast<uint32_t>(s.o / s.groups);
  const ConvPlace p(blockIdx.x / in, s.kh, s.kw);  // p.image: index of the filter
  const int64_t channel = p.image / out * in + blockIdx.x % in;
  C sum = 0;
  for (uint32_t window = threadIdx.x; window < windows; window += blockDim.x) {
    const ConvPlace at(window, s.ho, s.wo);
    const int64_t from = pixel(s, at.image, at.row, at.column, p.row, p.column);
    if (from >= 0) sum += C(x[from + channel]) * C(dy[window * s.o + p.image]);
  }
  sum = block_reduce(sum, Plus());
  if (threadIdx.x == 0) dw[blockIdx.x] = sum;
}

template <class T>
struct AddBias {
  const compute_t<T>* bias;
  const T* y;
  int64_t width;
  template <int n>
  __device__ void operator()(uint32_t pixel, uint32_t c, T (&values)[n]) const {
    const auto from = detail::load_pack<n>(y + pixel * width + c, 0);
    const auto add = load_any<n>(bias + c);
    for (int k = 0; k < n; ++k) values[k] = static_cast<T>(compute_t<T>(from.values[k]) + add.values[k]);
  }
};

// Channels of x and of y in a group.
struct GroupChannels {
  uint32_t in, out;
  explicit GroupChannels(const Conv2dShape& s)
      : in(index_count("conv2d", s.c / s.groups)), out(index_count("conv2d", s.o / s.groups)) {}
};

// The tensor that an operation writes.
const Tensor& written(Convolution what, const Tensor& x, const Tensor& w, const Tensor& y) {
  return what == Convolution::forward ? y : what == Convolution::backward_data ? x : w;
}

// Computes with cuDNN. Tensors that are not aligned to 16 bytes are copied, because parameters may begin at any offset
// of a bucket. Returns "" on success, otherwise cuDNN's reason.
std::string_view by_library(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                            const Tensor& w, const Tensor& y) {
  const Tensor& to = written(what, x, w, y);
  const auto placed = [&](const Tensor& t) {
    if (aligned_to<16>(t.address())) return t;
    return &t == &to ? Tensor(t.shape(), t.dtype(), t.device()) : t.clone();
  };
  const Tensor from_x = placed(x), from_w = placed(w), from_y = placed(y);
  const std::string_view why = convolve(device, what, options, from_x, from_w, from_y);
  if (why.empty()) to.copy_from(written(what, from_x, from_w, from_y));
  return why;
}

// Computes the result in type `dtype` and converts it to the type of the tensor that the operation writes.
std::string_view by_way_of(DType dtype, Cuda device, Convolution what, const ConvolutionOptions& options,
                           const Tensor& x, const Tensor& w, const Tensor& y) {
  const Tensor& to = written(what, x, w, y);
  const auto replaced = [&](const Tensor& t) {
    return &t == &to && t.dtype() != dtype ? Tensor(t.shape(), dtype, t.device()) : t;
  };
  const Tensor new_x = replaced(x), new_w = replaced(w), new_y = replaced(y);
  const std::string_view why = by_library(device, what, options, new_x, new_w, new_y);
  if (why.empty() && to.dtype() != dtype) to.copy_from(written(what, new_x, new_w, new_y).to(to.dtype()));
  return why;
}

// Computes from float32 copies. TF32 is exact here, because it represents every bfloat16.
std::string_view by_float32(Cuda device, Convolution what, ConvolutionOptions options, const Tensor& x, const Tensor& w,
                            const Tensor& y) {
  options.tf32 = true;
  const Tensor* to = &written(what, x, w, y);
  const auto wide = [&](const Tensor& t) { return &t == to ? t : t.to(DType::f32); };
  return by_way_of(DType::f32, device, what, options, wide(x), wide(w), wide(y));
}

constexpr int64_t kPath = 3;  // first cache key of this file in the context

// Computes with cuDNN, directly or through another type; returns false if cuDNN supports neither. The context's
// ConvolutionPaths list each operation once.
bool by_library(Cuda device, Convolution what, const Conv2dShape& s, const Tensor& x, const Tensor& w,
                const Tensor& y) {
  if (y.dtype() == DType::f64) return false;
  const ConvolutionOptions options{s.stride, s.padding, s.dilation, context().tf32};
  ConvolutionPaths& paths = device.context->convolutions;
  std::vector<std::string>* path = nullptr;
  std::string reasons{by_library(device, what, options, x, w, y)};
  if (!reasons.empty()) {
    path = &paths.plain;
    const auto attempt = [&](std::vector<std::string>& of, const char* way, auto&& compute) {
      if (path != &paths.plain) return;
      const std::string_view why = compute();
      if (why.empty()) path = &of;
      else reasons += detail::concat("; ", way, ": ", why);
    };
    const bool half = y.dtype() == DType::bf16;
    if (half && what == Convolution::backward_filter)
      attempt(paths.rounded, "with a bfloat16 result",
              [&] { return by_way_of(DType::bf16, device, what, options, x, w, y); });
    if (half) attempt(paths.by_float32, "in float32", [&] { return by_float32(device, what, options, x, w, y); });
  }
  const ConvolutionProblem problem{what, options, x, w, y};
  device.context->cached<bool>(problem.key(kPath), [&] {
    ++paths.operations;
    if (path) path->push_back(detail::concat(describe(problem), ": ", reasons));
    return true;
  });
  return path != &paths.plain;
}

}  // namespace

void conv2d_forward(Cuda device, const Conv2dShape& s, const Tensor& x, const Tensor& w_given, const Tensor& bias,
                    const Tensor& y) {
  const Tensor w = kernel_weights(w_given, x.dtype());
  dispatch_float(x.dtype(), "conv2d", [&]<class T>() {
    using C = compute_t<T>;
    const GroupChannels group(s);
    T* to = y.cuda_data<T>();
    if (!by_library(device, Convolution::forward, s, x, w, y))
      generate_rows(device, "conv2d", s.n * s.ho * s.wo, s.o, 1,
                    Correlated<T>{s, x.cuda_data<T>(), w.cuda_data<T>(), group.in, group.out}, to);
    if (bias.defined())
      generate_rows(device, "conv2d", s.n * s.ho * s.wo, s.o, s.o, AddBias<T>{bias.cuda_data<C>(), to, s.o}, to);
  });
}

void conv2d_backward_data(Cuda device, const Conv2dShape& s, const Tensor& dy, const Tensor& w_given,
                          const Tensor& dx) {
  const Tensor w = kernel_weights(w_given, dy.dtype());
  if (by_library(device, Convolution::backward_data, s, dx, w, dy)) return;
  dispatch_float(dy.dtype(), "conv2d", [&]<class T>() {
    const GroupChannels group(s);
    generate_rows(device, "conv2d", s.n * s.h * s.w, s.c, 1,
                  DataGradient<T>{s, dy.cuda_data<T>(), w.cuda_data<T>(), group.in, group.out}, dx.cuda_data<T>());
  });
}

void conv2d_backward_weights(Cuda device, const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                             const Tensor& db) {
  if (db.defined()) bias_backward(device, dy, db);
  if (by_library(device, Convolution::backward_filter, s, x, dw, dy)) return;
  dispatch_float(x.dtype(), "conv2d", [&]<class T>() {
    const int64_t windows = s.n * s.ho * s.wo;
    launch(device, "conv2d", conv_filter_gradient_kernel<T>, dw.numel(), row_threads(windows), s,
           index_count("conv2d", windows), x.cuda_data<T>(), dy.cuda_data<T>(), dw.cuda_data<compute_t<T>>());
  });
}

}  // namespace godwit
