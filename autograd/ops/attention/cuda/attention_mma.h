// bfloat16 attention on tensor cores, for head widths that are multiples of 8, at most 128, aligned to 16 bytes.
#pragma once
#include "autograd/ops/attention/attention.h"

namespace godwit::detail {

// All tensors of d are undefined in forward.
bool attention_on_tensor_cores(const AttentionTensors& t, const AttentionGradients& d);
void attention_forward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options);
void attention_backward_mma(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                            const AttentionGradients& d);

// Parts of these two for wide heads: forward for widths above 64, the gradients of q, k and v for widths above 32.
void attention_forward_parts(Cuda device, const AttentionTensors& t, const AttentionOptions& options);
void attention_backward_parts(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                              const AttentionGradients& d, const float* delta);

}  // namespace godwit::detail
