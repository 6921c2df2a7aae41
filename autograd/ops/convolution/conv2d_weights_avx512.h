// Inside conv2d*.cpp: the weight gradient of a bfloat16 convolution by AVX512_BF16 instructions, x86 only.
#pragma once
#include "autograd/ops/convolution/conv2d.h"

namespace godwit::detail {

// Extents the kernel takes: no groups, no dilation, channels in multiples of 32.
bool fits_weights_avx512(const Conv2dShape& s);
// dw [o, kh, kw, c] float32 from x and dy bfloat16, on a processor with AVX512_BF16: the same bits on any thread count.
void conv2d_weights_avx512(const Conv2dShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw);

}  // namespace godwit::detail
