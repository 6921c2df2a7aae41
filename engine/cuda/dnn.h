// Convolutions through cuDNN: images [n, h, w, c], filters [o, kh, kw, c/groups], results [n, ho, wo, o].
#pragma once
#include <string>
#include <string_view>

#include "engine/tensor.h"

namespace godwit {

enum class Convolution { forward, backward_data, backward_filter };

struct ConvolutionOptions {
  int64_t stride, padding, dilation;
  bool tf32;  // float32 products may round their factors to 11 bits
};

// Writes y, x or w, as `what` says, from the other two; gradients take the place of what they are of. float32 or
// bfloat16, in memory that begins at 16 bytes; sums of products in float32, by deterministic engines only. The groups
// follow from the channels. Empty when done; else why cuDNN has no way, and what is written is undefined. The engine is
// chosen once for a shape: the first that cuDNN proposes and that then runs.
std::string_view convolve(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                          const Tensor& w, const Tensor& y);

// "conv2d forward, x float32 [2, 8, 8, 16], weight …", for messages.
std::string describe(Convolution what, const ConvolutionOptions& options, const Tensor& x, const Tensor& w,
                     const Tensor& y);

}  // namespace godwit
