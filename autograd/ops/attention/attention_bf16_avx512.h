// bfloat16 attention with AVX512_BF16 instructions (x86). Only attention*.cpp includes this header.
#pragma once
#include "autograd/ops/attention/attention_heads.h"

namespace godwit::detail {

bool attention_bf16_avx512();  // whether these functions are faster than float32

// These functions process heads [begin, end) of for_heads(). Products take bfloat16 inputs and sum in float32. q·k and
// d_out·v use the unchanged inputs. Probabilities and score gradients are rounded to bfloat16.
void attention_forward_avx512(const AttentionCall& call, const AttentionTensors& t, int64_t begin, int64_t end);
void attention_backward_avx512(const AttentionCall& call, const AttentionTensors& t, const AttentionGradients& d,
                               int64_t begin, int64_t end);

}  // namespace godwit::detail
