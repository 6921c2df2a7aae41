// Weight gradient of a bfloat16 convolution with AVX512_BF16 instructions (x86). Only conv2d*.cpp includes this header.
#pragma once
#include "autograd/ops/convolution/conv2d.h"

namespace godwit::detail {

// Whether the kernel supports the extents: no groups, no dilation, numbers of channels that are multiples of 32.
bool fits_weights_avx512(const Conv2dShape& s);
// dw [o, kh, kw, c] float32 from bfloat16 x and dy. Requires AVX512_BF16. Bit-identical for any thread count.
void conv2d_weights_avx512(const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw);

}  // namespace godwit::detail
