// bfloat16 attention on tensor cores, for head widths that are multiples of 8, at most 128, and aligned to 16 bytes.
#pragma once
#include "autograd/ops/attention/attention.h"

namespace godwit::detail {

// Whether the functions below support these tensors. In the forward pass, all tensors of d are undefined.
bool attention_on_tensor_cores(const AttentionTensors& t, const AttentionGradients& d);
void attention_forward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options);
void attention_backward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                            const AttentionGradients& d);

}  // namespace godwit::detail
