// Convolutions through cuDNN: images [n, h, w, c], filters [o, kh, kw, c/groups], outputs [n, ho, wo, o].
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

enum class Convolution { forward, backward_data, backward_filter };

struct ConvolutionOptions {
  int64_t stride, padding, dilation;
  bool tf32;  // float32 products may round their factors to 11 bits
};

// The kind and options of a convolution, and the types and extents of its tensors.
struct ConvolutionProblem {
  struct Operand {
    DType dtype;
    std::array<int64_t, 4> extents;
    Operand(DType type, const std::array<int64_t, 4>& of) : dtype(type), extents(of) {}
    Operand(const Tensor& t) : Operand(t.dtype(), {t.dim(0), t.dim(1), t.dim(2), t.dim(3)}) {}  // NOLINT: implicit
  };
  Convolution what;
  ConvolutionOptions options;
  Operand x, w, y;

  std::vector<int64_t> key(int64_t first) const;  // for CudaContext::cached()
};

// A text for messages: "conv2d forward, x float32 [2, 8, 8, 16], weight …". Different problems have different texts.
std::string describe(const ConvolutionProblem& problem);

// Computes y, x or w, as `what` selects, from the other two. A gradient is passed in place of its tensor. Tensors are
// float32 or bfloat16 and aligned to 16 bytes. Filter gradients of bfloat16 images may be float32. Sums are in float32.
// Only deterministic engines are used. The number of groups follows from the channels. Returns "" on success.
// Otherwise, returns cuDNN's reason for the failure, and the output is undefined. The engine is chosen once per shape:
// the first of cuDNN's proposals that runs or, if the context's dnn_timing is set, the choice of timed_plan().
std::string_view convolve(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                          const Tensor& w, const Tensor& y);

}  // namespace godwit
