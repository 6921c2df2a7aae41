// Inside attention*.cpp: bfloat16 attention by AVX512_BF16 instructions, x86 only.
#pragma once
#include "autograd/ops/attention/attention_heads.h"

namespace godwit::detail {

bool attention_bf16_avx512();  // whether this processor has them, and the context allows vectors of 512 bits

// The heads [begin, end) of for_heads(). Products take bfloat16 and sum in float32: q·k and d_out·v as they are, the
// probabilities and the gradients of the scores rounded.
void attention_forward_avx512(const AttentionCall& call, const AttentionTensors& t, int64_t begin, int64_t end);
void attention_backward_avx512(const AttentionCall& call, const AttentionTensors& t, const AttentionGradients& d,
                               int64_t begin, int64_t end);

}  // namespace godwit::detail
