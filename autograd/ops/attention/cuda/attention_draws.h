// Dropout decisions as bits. They are drawn once per call and read by all kernels.
#pragma once
#include "autograd/ops/attention/cuda/attention_tiles.h"

namespace godwit::detail {

// One bit per probability: 1 if the probability is kept. The row of a query has one word per 32 keys, for a multiple of
// 128 keys.
struct KeptBits {
  const uint32_t* words;

  static __host__ __device__ int64_t row_words(int64_t keys) { return (keys + 127) / 128 * 4; }
  // The row of query `i` of head `number`.
  __device__ const uint32_t* row(const AttentionView& call, int64_t number, int64_t i) const {
    return words + (number * call.queries + i) * row_words(call.keys);
  }
};

// Draws the bits, one word at a time per thread. Words after the last key that a query attends are not written.
static __global__ void draw_kernel(AttentionView call, uint32_t words, uint32_t* to) {
  const auto row_words = static_cast<uint32_t>(KeptBits::row_words(call.keys));
  const auto queries = static_cast<uint32_t>(call.queries), keys = static_cast<uint32_t>(call.keys);
  const bool causal = call.past < call.keys;
  const uint32_t step = call.step();
  for (uint32_t at = grid_thread32(); at < words; at += grid_threads32()) {
    const uint32_t row = at / row_words, key = (at - row * row_words) * 32;
    if (key >= keys || (causal && key > row % queries + static_cast<uint32_t>(call.past))) continue;
    const uint64_t first = uint64_t{row} * keys + key;
    const auto quad = static_cast<uint32_t>(first >> 2);
    uint32_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) bits |= kept_of_quad(call, quad + i, step) << 4 * i;
    const int shift = static_cast<int>(first & 3);  // nonzero if rows begin within a quad
    if (shift != 0) bits = bits >> shift | kept_of_quad(call, quad + 8, step) << (32 - shift);
    to[at] = bits;
  }
}

inline uint32_t* kept_data(const Tensor& bits) { return bits.defined() ? bits.cuda_data<uint32_t>() : nullptr; }

// Draws the bits of a call to t.kept, or to a new tensor if t.kept is undefined. Returns an undefined tensor without
// dropout.
inline Tensor draw_kept(Cuda device, const AttentionTensors& t, const AttentionOptions& options,
                        const AttentionView& call) {
  const Tensor bits = t.kept.defined() ? t.kept : attention_kept(t, options);
  if (!bits.defined()) return {};
  launch(device, "attention", draw_kernel, blocks_for(device, bits.numel()), kBlock, call,
         index_count("attention", bits.numel()), kept_data(bits));
  return bits;
}

}  // namespace godwit::detail
